-- create ()
CREATE TABLE `app`.`inbox_control` (
    `queue` TEXT NOT NULL PRIMARY KEY,
    `paused_at` TEXT
);

-- control ()
SELECT `queue` FROM `app`.`inbox_control`;

-- resume ('a',)
DELETE FROM `app`.`inbox_control` WHERE `queue` = $1;
