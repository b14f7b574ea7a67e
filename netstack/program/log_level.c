/*
 * Components of the log: types of rte_log, so that DPDK's and ours are set and
 * listed alike. The levels in rte_log are copied here, so that a test costs one
 * load.
 */
#include "netstack/program/log.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_glue/glue.h"

#define COMPONENT_MAX 64 /* bytes of a name or pattern */

static const char *names[NET_COMPONENTS] = {
	[NET_COMPONENT_PROGRAM] = "coronet.program",
	[NET_COMPONENT_API] = "coronet.api",
	[NET_COMPONENT_CONN] = "coronet.conn",
	[NET_COMPONENT_LISTEN] = "coronet.listen",
	[NET_COMPONENT_DIAL] = "coronet.dial",
	[NET_COMPONENT_RECOVERY] = "coronet.recovery",
	[NET_COMPONENT_NEIGH] = "coronet.neigh",
	[NET_COMPONENT_LINK] = "coronet.link",
	[NET_COMPONENT_MEMORY] = "coronet.memory",
	[NET_COMPONENT_CONTROL] = "coronet.control",
	[NET_COMPONENT_CAPTURE] = "coronet.capture",
	[NET_COMPONENT_STATS] = "coronet.stats",
	[NET_COMPONENT_WATCHDOG] = "coronet.watchdog",
};
static int ids[NET_COMPONENTS];
static bool registered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint8_t net_log_levels[NET_COMPONENTS] = {[0 ... NET_COMPONENTS - 1] =
						  NET_LOG_NOTICE};

static const char *const level_names[] = {
	[NET_LOG_EMERGENCY] = "emergency", [NET_LOG_ALERT] = "alert",
	[NET_LOG_CRITICAL] = "critical",   [NET_LOG_ERROR] = "error",
	[NET_LOG_WARNING] = "warning",	   [NET_LOG_NOTICE] = "notice",
	[NET_LOG_INFO] = "info",	   [NET_LOG_DEBUG] = "debug"};
#define N_LEVELS (sizeof(level_names) / sizeof(level_names[0]))

const char *net_log_level_name(unsigned level)
{
	return level < N_LEVELS ? level_names[level] : NULL;
}

enum net_log_level net_log_level_number(const char *text)
{
	for (unsigned i = NET_LOG_EMERGENCY; i < N_LEVELS; i++)
		if (strcmp(text, level_names[i]) == 0)
			return (enum net_log_level)i;
	if (*text >= '1' && *text <= '8' && !text[1])
		return (enum net_log_level)(*text - '0');
	return (enum net_log_level)0;
}

/* ---- components ---- */

/* Needs the lock. */
static int make_type(enum net_component component)
{
	int id = glue_log_register(names[component], net_log_levels[component]);

	if (id < 0)
		return id;
	ids[component] = id;
	return 0;
}

int net_log_levels_open(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; !registered && i < NET_COMPONENTS; i++) {
		err = make_type(i);
		if (err < 0)
			break;
	}
	registered = err == 0;
	pthread_mutex_unlock(&lock);
	return err;
}

int net_log_name(const char *component)
{
	int err = 0;

	if (!component ||
	    strncmp(component, GLUE_LOG_CORONET, strlen(GLUE_LOG_CORONET)) !=
		    0 ||
	    strlen(component) == strlen(GLUE_LOG_CORONET) ||
	    strlen(component) >= COMPONENT_MAX ||
	    strcspn(component, "*?[]=, ") != strlen(component))
		return -EINVAL;
	pthread_mutex_lock(&lock);
	names[NET_COMPONENT_PROGRAM] = component;
	if (registered)
		err = make_type(NET_COMPONENT_PROGRAM);
	pthread_mutex_unlock(&lock);
	return err;
}

/* Copies the levels that rte_log has now. Needs the lock. */
static void copy_levels(void)
{
	for (unsigned i = 0; registered && i < NET_COMPONENTS; i++)
		__atomic_store_n(&net_log_levels[i],
				 (uint8_t)glue_log_level_of(ids[i]),
				 __ATOMIC_RELAXED);
}

/* ---- parsing levels ---- */

#define EXPECTED                                                               \
	"expected [COMPONENT=]LEVEL, as in coronet.conn=info or "              \
	"pmd.net.*=debug; levels are emergency, alert, critical, error, "      \
	"warning, notice, info, debug"

struct search {
	const char *pattern;
	bool found;
};

static void match_type(const char *type, unsigned level, void *arg)
{
	struct search *search = arg;

	search->found |= fnmatch(search->pattern, type, 0) == 0;
}

static bool has_type(const char *pattern)
{
	struct search search = {.pattern = pattern};

	glue_log_types(match_type, &search);
	return search.found;
}

/*
 * Checks or sets one of several levels. item: NUL-terminated, and changed.
 */
static int set_one(char *item, bool apply, bool all_known, char *err,
		   size_t err_len)
{
	char *value = strrchr(item, '=');
	const char *pattern = value ? item : GLUE_LOG_CORONET "*";
	enum net_log_level level =
		net_log_level_number(value ? value + 1 : item);

	if (!level || value == item || strlen(pattern) >= COMPONENT_MAX) {
		snprintf(err, err_len, "'%s': " EXPECTED, item);
		return -EINVAL;
	}
	if (value)
		*value = '\0';
	if (all_known && !has_type(pattern)) {
		snprintf(err, err_len,
			 "'%s': there is no such component; 'coronet-ctl "
			 "log.level' lists the components",
			 pattern);
		return -ENOENT;
	}
	if (!apply)
		return 0;
	pthread_mutex_lock(&lock);
	glue_log_level(pattern, level);
	copy_levels();
	pthread_mutex_unlock(&lock);
	return 0;
}

static int each_level(const char *text, bool apply, bool all_known, char *err,
		      size_t err_len)
{
	char *copy = strdup(text), *rest = copy, *item;
	int rc = copy ? 0 : -ENOMEM;

	while (rc == 0 && (item = strsep(&rest, ",")))
		rc = set_one(item, apply, all_known, err, err_len);
	if (rc == -ENOMEM)
		snprintf(err, err_len, "no memory");
	free(copy);
	return rc;
}

int net_log_check_levels(const char *text, char *err, size_t err_len)
{
	return each_level(text, false, false, err, err_len);
}

int net_log_set_levels(const char *text, bool all_known, char *err,
		       size_t err_len)
{
	int rc = each_level(text, false, all_known, err, err_len);

	return rc < 0 ? rc : each_level(text, true, all_known, err, err_len);
}
