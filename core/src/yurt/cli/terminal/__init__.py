"""What a command prints and asks: tables, colours, figures as text, templates, sessions with a task."""
