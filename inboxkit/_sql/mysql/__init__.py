"""SQL for MariaDB, 10.6 and newer, and MySQL, 8.0.1 and newer."""

from .dialect import Mysql

__all__ = ["Mysql"]
