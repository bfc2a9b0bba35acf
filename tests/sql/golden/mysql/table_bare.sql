CREATE TABLE `select` (
    `ID` bigint NOT NULL PRIMARY KEY,
    `a ``b`` "c".d` datetime(6) NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE INDEX `select_queue` ON `select` (`a ``b`` "c".d`, `ID`);
