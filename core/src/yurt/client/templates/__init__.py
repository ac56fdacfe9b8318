"""Task templates: rendering files of a task, rendering them again after changes, notifying the task.

A rendering is pure: it asks questions (a variable, the instances of a service, a file), and says which of them have
no answer yet. The agent answers them by watching (`sources`), renders in a child process (`renderer`), because a
template is a stranger's program, and writes the file (`files`). `follower` is the
loop that does all of this for one start, `notices` tells the running task, `manager` spans the starts of a task.
"""
