from pelops.cli.main import main

main()
