"""What services need beside the queue: adapters to other libraries, each module called after the one that
it needs; and `cron` and `retention`, called after what they are for."""
