"""The `penstock` command: `main` holds the list of commands, every other module one group of them or what they share.

Commands are loaded when they are used (`lazy`), so that the command starts quickly however much it can do.
"""
