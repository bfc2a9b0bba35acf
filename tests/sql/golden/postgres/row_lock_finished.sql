-- claim ([7],)
SELECT q."id", q."done" FROM "email_jobs" AS q WHERE q."id" <> ALL($1::text[]) AND q."done" IS NULL ORDER BY q."id" LIMIT 1 FOR UPDATE OF q SKIP LOCKED;

-- claim ([7],)
SELECT q."id", q."done" FROM "email_jobs" AS q WHERE q."id" <> ALL($1::text[]) AND q."done" IS NULL ORDER BY q."id" LIMIT 10 FOR UPDATE OF q SKIP LOCKED;

-- finish (1, '<now>')
UPDATE "email_jobs" AS q SET "done" = $2::timestamp with time zone WHERE q."id" = $1::text RETURNING q."id";

-- move (1,)
WITH moved AS (DELETE FROM "email_jobs" AS q WHERE q."id" = $1::text RETURNING q."id", q."done") INSERT INTO "app"."dead" ("id", "done") OVERRIDING SYSTEM VALUE SELECT "id", "done" FROM moved RETURNING "id";
