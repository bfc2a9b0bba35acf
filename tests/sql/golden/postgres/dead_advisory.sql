-- dead probe ([7, 8],)
SELECT ready.id FROM (SELECT q."id", concat('mail-', q."id") FROM "app"."mail_jobs" AS q WHERE q."id" = ANY($1::bigint[]) OFFSET 0) AS ready(id, key) WHERE pg_try_advisory_xact_lock_shared(hashtextextended(ready.key COLLATE "C", 0));
