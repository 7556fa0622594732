"""The tests of the shelf run kernels as this machine runs them: compiled on a GPU, else not."""

import course_utils

course_utils.machine()  # decides how kernels run, before a test module imports triton
