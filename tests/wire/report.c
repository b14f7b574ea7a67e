/* The report of a wire's counters, at its end and on request. */
#include "tests/wire/report.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

static const struct counter {
	const char *name; /* in the JSON; in the text with spaces */
	size_t offset;
} counters[] = {
	{"in_frames", offsetof(struct wire_counts, model.in_frames)},
	{"in_bytes", offsetof(struct wire_counts, model.in_bytes)},
	{"out_frames", offsetof(struct wire_counts, out_frames)},
	{"out_bytes", offsetof(struct wire_counts, out_bytes)},
	{"too_big", offsetof(struct wire_counts, model.too_big)},
	{"reported", offsetof(struct wire_counts, reported)},
	{"lost", offsetof(struct wire_counts, model.lost)},
	{"duplicated", offsetof(struct wire_counts, model.duplicated)},
	{"reordered", offsetof(struct wire_counts, model.reordered)},
	{"corrupted", offsetof(struct wire_counts, model.corrupted)},
	{"marked", offsetof(struct wire_counts, marked)},
	{"queue_dropped", offsetof(struct wire_counts, model.queue_dropped)},
	{"down", offsetof(struct wire_counts, model.down)},
	{"overflowed", offsetof(struct wire_counts, overflowed)},
	{"no_frame", offsetof(struct wire_counts, no_frame)},
	{"under_way", offsetof(struct wire_counts, under_way)},
	{"late", offsetof(struct wire_counts, late)},
	{"late_most", offsetof(struct wire_counts, late_max)},
	{"missed", offsetof(struct wire_counts, missed)},
	{"refused", offsetof(struct wire_counts, refused)},
};
#define N_COUNTERS (sizeof(counters) / sizeof(counters[0]))

static uint64_t value_of(const struct wire_counts *counts, size_t i)
{
	const char *base = (const char *)counts;

	return *(const uint64_t *)(const void *)(base + counters[i].offset);
}

/* Prints frames in and out always, and other counters unless they are 0. */
static void print_direction(const char *from, const char *to,
			    const struct wire_counts *counts)
{
	printf("%s -> %s:", from, to);
	for (size_t i = 0; i < N_COUNTERS; i++)
		if (i < 4 || value_of(counts, i))
			printf(" %s %ju", counters[i].name,
			       (uintmax_t)value_of(counts, i));
	putchar('\n');
}

static cJSON *direction_json(const struct wire_counts *counts)
{
	cJSON *object = cJSON_CreateObject();

	for (size_t i = 0; i < N_COUNTERS; i++)
		cJSON_AddNumberToObject(object, counters[i].name,
					(double)value_of(counts, i));
	return object;
}

static cJSON *whole_json(const struct wire_opts *opts,
			 const struct wire_times *times,
			 const struct wire_counts counts[WIRE_ENDS])
{
	cJSON *root = cJSON_CreateObject();

	cJSON_AddStringToObject(root, "a", opts->link_texts[WIRE_A]);
	cJSON_AddStringToObject(root, "b", opts->link_texts[WIRE_B]);
	cJSON_AddNumberToObject(root, "seed", (double)opts->seed);
	cJSON_AddNumberToObject(root, "seconds", (double)times->ran_ns / 1e9);
	cJSON_AddNumberToObject(root, "busy_seconds",
				(double)times->busy_ns / 1e9);
	cJSON_AddItemToObject(root, "a_to_b", direction_json(&counts[WIRE_A]));
	cJSON_AddItemToObject(root, "b_to_a", direction_json(&counts[WIRE_B]));
	return root;
}

static int write_json(FILE *file, char *text)
{
	int err = -ENOMEM;

	if (text) {
		errno = EIO;
		err = fprintf(file, "%s\n", text) < 0 || fflush(file) == EOF
			      ? -errno
			      : 0;
	}
	free(text);
	return err;
}

int wire_report(const struct wire_opts *opts, const struct wire_times *times,
		const struct wire_counts counts[WIRE_ENDS])
{
	const char *a = opts->link_texts[WIRE_A];
	const char *b = opts->link_texts[WIRE_B];
	cJSON *root;
	int err;

	print_direction(a, b, &counts[WIRE_A]);
	print_direction(b, a, &counts[WIRE_B]);
	fflush(stdout);
	if (!opts->json)
		return 0;
	root = whole_json(opts, times, counts);
	err = write_json(opts->json, cJSON_Print(root));
	cJSON_Delete(root);
	return err;
}

int wire_report_now(const struct wire_opts *opts,
		    const struct wire_times *times,
		    const struct wire_counts counts[WIRE_ENDS])
{
	cJSON *root = whole_json(opts, times, counts);
	int err = write_json(stdout, cJSON_PrintUnformatted(root));

	cJSON_Delete(root);
	return err;
}
