"""Boxes out of Linux namespaces: own processes, own mounts, own host name, own memory cgroup."""
