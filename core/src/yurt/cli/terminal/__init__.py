"""Input and output of commands: tables, colours, figures as text, templates, sessions with a task."""
