/*
 * DPDK's log types: registers coronet's, and sets levels while the program
 * runs.
 */
#include "dpdk_glue/glue_priv.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_log.h>

static_assert(RTE_LOG_EMERG == 1 && RTE_LOG_WARNING == GLUE_LOG_WARNING &&
		      RTE_LOG_DEBUG == GLUE_LOG_DEBUG,
	      "levels are DPDK's");

int glue_log_register(const char *type, unsigned level)
{
	int id = rte_log_register(type);

	if (id >= 0)
		rte_log_set_level((uint32_t)id, level);
	return id < 0 ? -ENOMEM : id;
}

unsigned glue_log_level_of(int id)
{
	int level = rte_log_get_level((uint32_t)id);

	return level < 0 ? 0 : (unsigned)level;
}

/* DPDK 22.11 lists types on a stream only: "id 4: lib.eal, level is info". */
static void for_each_type(void (*fn)(int id, const char *type, void *arg),
			  void *arg)
{
	char *text = NULL, *save = NULL;
	size_t len = 0;
	FILE *stream = open_memstream(&text, &len);

	if (!stream)
		return;
	rte_log_dump(stream);
	fclose(stream);
	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char type[64];
		unsigned id;

		if (sscanf(line, "id %u: %63[^,],", &id, type) == 2)
			fn((int)id, type, arg);
	}
	free(text);
}

struct setting {
	const char *pattern;
	unsigned level;
	int n;
};

static void set_matching(int id, const char *type, void *arg)
{
	struct setting *setting = arg;

	if (fnmatch(setting->pattern, type, 0) != 0)
		return;
	rte_log_set_level((uint32_t)id, setting->level);
	setting->n++;
}

int glue_log_level(const char *pattern, unsigned level)
{
	struct setting setting = {.pattern = pattern, .level = level};

	if (level < RTE_LOG_EMERG || level > RTE_LOG_MAX)
		return -EINVAL;
	/* The global level also limits types with a higher level of their
	 * own. */
	if (rte_log_get_global_level() < level)
		rte_log_set_global_level(level);
	for_each_type(set_matching, &setting);
	return setting.n ? setting.n : -ENOENT;
}

struct listing {
	void (*fn)(const char *type, unsigned level, void *arg);
	void *arg;
};

static void report_type(int id, const char *type, void *arg)
{
	const struct listing *listing = arg;

	listing->fn(type, glue_log_level_of(id), listing->arg);
}

void glue_log_types(void (*fn)(const char *type, unsigned level, void *arg),
		    void *arg)
{
	struct listing listing = {fn, arg};

	for_each_type(report_type, &listing);
}

static void lower_level(int id, const char *type, void *arg)
{
	if (glue_log_level_of(id) > GLUE_LOG_WARNING &&
	    strncmp(type, GLUE_LOG_CORONET, strlen(GLUE_LOG_CORONET)) != 0)
		rte_log_set_level((uint32_t)id, GLUE_LOG_WARNING);
}

/*
 * At start the global level keeps DPDK's types quiet, but it would also hide a
 * type that is to log more. So each type gets that level as its own, and the
 * global one lets everything pass, unless words for EAL have set it.
 */
void glue_log_settle(void)
{
	if (rte_log_get_global_level() != RTE_LOG_WARNING)
		return;
	for_each_type(lower_level, NULL);
	rte_log_set_global_level(RTE_LOG_MAX);
}
