CREATE TABLE `select` (
    `ID` INTEGER NOT NULL PRIMARY KEY,
    `a ``b`` "c".d` TEXT
);
CREATE INDEX `select_queue` ON `select` (`ID`) WHERE `a ``b`` "c".d` IS NULL;
CREATE INDEX `select_lease` ON `select` (`a ``b`` "c".d`) WHERE `a ``b`` "c".d` IS NOT NULL;
