"""Small commands that prove, copy and search what is on a box: a module for each, and two that they share.

file_tree walks a directory without leaving it, hashing reads files that may be changing.
"""
