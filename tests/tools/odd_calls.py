"""Odd arguments and odd files: nothing is cut off in silence, and the answer says what is the matter."""
import os
import subprocess

from toolslib import PROGRAM, Directory, check, equal, finish, private_home, wanted


def test_a_nul_in_arguments_is_refused(root):
    for arguments in ['{"path": "a\\u0000b", "content": "x"}', '{"path": "a", "content": "x\\u0000y"}', '{"path": "a", "content": "\\ud800"}',
                      '{"path": "a", "path": "b", "content": ""}', '{"path": "a", ', ""]:
        for given in arguments, "-":
            done = subprocess.run([PROGRAM, "tool", "write", "--root", root, "--json", given], input=arguments.encode(),
                                  capture_output=True, check=False)
            equal(2, done.returncode, arguments)
            check(b"JSON" in done.stderr or b"\\u0000 cannot be part" in done.stderr, done.stderr)
    equal([], os.listdir(root), "what was written")


private_home()
for name, test in sorted(globals().items()):
    if wanted(name):
        with Directory() as directory:
            test(os.path.realpath(directory))
finish()
