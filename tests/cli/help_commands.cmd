for command in demo ops run explain doctor; do kiln $command --help; echo; done
