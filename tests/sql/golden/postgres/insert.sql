-- described, error: 1
-- insert
INSERT INTO "app"."mail_jobs" ("name", "priority", "retry_after", "attempt", "locked_until", "headers", "payload", "note") SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamp with time zone[], $4::bigint[], $5::timestamp with time zone[], $6::jsonb[], $7::bytea[], $8::text[]) RETURNING "id";

-- described, ignore: 2
-- insert
INSERT INTO "app"."mail_jobs" ("name", "priority", "retry_after", "attempt", "locked_until", "headers", "payload", "note") VALUES ($1::text, $2::bigint, $3::timestamp with time zone, $4::bigint, $5::timestamp with time zone, $6::jsonb, $7::bytea, $8::text) ON CONFLICT DO NOTHING RETURNING "id";

-- not described, error: 1
-- insert
INSERT INTO "app"."mail_jobs" ("name", "priority", "retry_after", "attempt", "locked_until", "headers", "payload", "note") VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16) RETURNING "id";

-- not described, ignore: 2
-- insert
INSERT INTO "app"."mail_jobs" ("name", "priority", "retry_after", "attempt", "locked_until", "headers", "payload", "note") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING "id";
