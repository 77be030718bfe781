from pelops.controller.replica import main

main()
