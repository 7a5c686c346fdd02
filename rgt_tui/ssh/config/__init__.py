"""ssh_config as OpenSSH reads it: files in, one frozen description of a host out. Nothing here connects."""
