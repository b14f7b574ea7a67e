/*
 * The impairments by name: as options, in --a-to-b and --b-to-a, and on the
 * lines that change a wire while it runs.
 */
#pragma once

#include <stddef.h>

#include "tests/wire/model.h"

struct wire_setting {
	const char *name;
	int kind;      /* private */
	size_t offset; /* private: in struct wire_conf */
	const char *arg;
	const char *example;
	const char *doc;
};

#define WIRE_SETTINGS 14
extern const struct wire_setting wire_settings[WIRE_SETTINGS];

/* The keys, for a message: "loss, delay, ... or up-at". */
#define WIRE_SETTING_KEYS                                                      \
	"loss, delay, jitter, reorder, reorder-by, duplicate, corrupt, rate, " \
	"queue, mark, path-mtu, too-big, down-at or up-at"

/* Returns 0, -EINVAL or -ERANGE; conf changes on success only. */
int wire_setting_parse(const struct wire_setting *setting, const char *text,
		       struct wire_conf *conf);

/* Returns a description of valid values, such as "percent from 0 to 100". */
const char *wire_setting_expected(const struct wire_setting *setting);

/*
 * Applies "loss=1,delay=20" to conf, and modifies the string. Returns 0, or
 * -EINVAL with the wrong word, borrowed from words, and a description of valid
 * values; the words before it have been applied then.
 */
int wire_settings_apply(char *words, struct wire_conf *conf, const char **wrong,
			const char **expected);

/* Whether the link comes up, if it does, after it went down. */
bool wire_setting_up_follows_down(const struct wire_conf *conf);
