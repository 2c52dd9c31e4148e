for command in demo ops run explain graph doctor; do kiln $command --help; echo; done
