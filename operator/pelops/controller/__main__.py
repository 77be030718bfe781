from pelops.controller.main import main

main()
