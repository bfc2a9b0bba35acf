-- create ()
CREATE TABLE `app`.`inbox_control` (
    `queue` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    `paused_at` datetime(6) NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;

-- control ()
SELECT `queue` FROM `app`.`inbox_control`;

-- resume ('a',)
DELETE FROM `app`.`inbox_control` WHERE `queue` = $1;
