"""How nbgrader works with this folder: what it reads, what it makes, how long it waits.

`make exercises` uses it, and so does every `nbgrader` command that is started here.
"""

c = get_config()  # noqa: F821 (nbgrader puts it there)

c.CourseDirectory.course_id = "writing-fast-kernels"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

# A raise or `...` in a Triton kernel gives obscure errors. `pass` does nothing there and anywhere
# else, so that an exercise runs from top to bottom before any of it is solved.
c.ClearSolutions.code_stub = {"python": "# Your lines go here.\npass"}

# A check gives an answer 60 seconds, and a cell that is graded holds two checks.
c.Execute.timeout = 150
