-- create ()
CREATE TABLE "app"."inbox_control" (
    "queue" text PRIMARY KEY,
    "paused_at" timestamptz
);

-- control ()
SELECT "queue" FROM "app"."inbox_control";

-- resume ('a',)
DELETE FROM "app"."inbox_control" WHERE "queue" = $1;
