/* A bounded queue of frames in flight, ordered by the time they leave. */
#include "tests/wire/line.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct entry {
	int64_t leaves_ns;
	uint64_t order;
	void *item;
};

/* A binary heap: entry i is before entries 2i + 1 and 2i + 2. */
struct wire_line {
	unsigned n, max;
	uint64_t pushed;
	struct entry heap[];
};

static bool before(const struct entry *a, const struct entry *b)
{
	return a->leaves_ns != b->leaves_ns ? a->leaves_ns < b->leaves_ns
					    : a->order < b->order;
}

int wire_line_open(unsigned max, struct wire_line **out)
{
	struct wire_line *line;

	line = calloc(1, sizeof(*line) + max * sizeof(line->heap[0]));
	if (!line)
		return -ENOMEM;
	line->max = max;
	*out = line;
	return 0;
}

void wire_line_close(struct wire_line *line)
{
	free(line);
}

int wire_line_push(struct wire_line *line, int64_t leaves_ns, void *item)
{
	struct entry entry = {leaves_ns, line->pushed, item};
	unsigned at = line->n;

	if (line->n == line->max)
		return -ENOBUFS;
	while (at > 0 && before(&entry, &line->heap[(at - 1) / 2])) {
		line->heap[at] = line->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	line->heap[at] = entry;
	line->pushed++;
	line->n++;
	return 0;
}

/* The last entry goes to the top and sinks to where it belongs. */
static void remove_first(struct wire_line *line)
{
	struct entry last = line->heap[--line->n];
	unsigned at = 0, child;

	while ((child = 2 * at + 1) < line->n) {
		if (child + 1 < line->n &&
		    before(&line->heap[child + 1], &line->heap[child]))
			child++;
		if (!before(&line->heap[child], &last))
			break;
		line->heap[at] = line->heap[child];
		at = child;
	}
	line->heap[at] = last;
}

void *wire_line_pop(struct wire_line *line, int64_t now_ns)
{
	void *item;

	if (wire_line_next_ns(line) > now_ns || line->n == 0)
		return NULL;
	item = line->heap[0].item;
	remove_first(line);
	return item;
}

int64_t wire_line_next_ns(const struct wire_line *line)
{
	return line->n ? line->heap[0].leaves_ns : INT64_MAX;
}

unsigned wire_line_count(const struct wire_line *line)
{
	return line->n;
}
