/*
 * coronet-ctl's commands that change the stack's addresses and routes.
 */
#include <stdio.h>
#include <string.h>

#include "apps/ctl/coronet_ctl_priv.h"

/* Adds or deletes an address of the stack. */
int ctl_run_addr(struct ctl *ctl, const struct command *command)
{
	bool has_link = ctl->n_words == 4;
	char params[120];

	if (ctl->n_words == 3 ||
	    (has_link && strcmp(ctl->words[2], "dev") != 0)) {
		fprintf(stderr,
			"coronet-ctl: %s: '%s': expected dev and the number of "
			"a link\n",
			command->name, ctl->words[2]);
		return 2;
	}
	snprintf(params, sizeof(params), "%s%s%s", ctl->words[1],
		 has_link ? "," : "", has_link ? ctl->words[3] : "");
	return ctl_print_answer(
		ctl, ctl_ask(&ctl->client, command->request, params), NULL);
}

/* Adds or deletes a route; its words may be one argument, as of --route. */
int ctl_run_route(struct ctl *ctl, const struct command *command)
{
	char params[256] = "";
	size_t len = 0;

	for (unsigned i = 1; i < ctl->n_words && len < sizeof(params); i++)
		len += (size_t)snprintf(params + len, sizeof(params) - len,
					"%s%s", i > 1 ? " " : "",
					ctl->words[i]);
	if (len >= sizeof(params)) {
		fprintf(stderr, "coronet-ctl: %s: too long\n", command->name);
		return 2;
	}
	return ctl_print_answer(
		ctl, ctl_ask(&ctl->client, command->request, params), NULL);
}
