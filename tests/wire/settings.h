/*
 * The impairments by name: as options, in --a-to-b and --b-to-a, and on the
 * lines that change a wire while it runs.
 */
#pragma once

#include "netstack/options/opt.h"
#include "tests/wire/model.h"

/* Input: a struct wire_conf. */
extern const struct argp wire_settings_argp;

/* No impairments, except for those that have a default. */
void wire_settings_init(struct wire_conf *conf);

/*
 * Applies "loss=1,delay=20" to conf, and modifies the string. Returns 0, or
 * -EINVAL with error->expected; the words before have been applied then.
 */
int wire_settings_apply(char *words, struct wire_conf *conf,
			struct opt_error *error);

/* Returns whether the link comes up, if it does, after it went down. */
bool wire_setting_up_follows_down(const struct wire_conf *conf);
