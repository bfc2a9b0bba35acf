"""What joins inboxkit to other libraries; each module needs the one that it is called after."""
