"""An oracle for audits: it acts on a real server, keeps its own books, and checks what is said."""
