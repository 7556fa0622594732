"""The tasks, a module each: ``lNN_<name>.py`` of lesson NN, holding ``TASK``.

A module says what is right (``reference``), what is tried (``cases``), what it may cost
(``budget``), which mistakes people make and which other answers are right.
"""
