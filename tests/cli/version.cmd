for command in '' demo ops run explain doctor; do kiln $command --version; done | sort -u | sed 's/[0-9]*\.[0-9]*\.[0-9]*$/N/'
