/*
 * coronet-ctl addr add and del: the stack's addresses.
 */
#include "apps/ctl/coronet_ctl_priv.h"
#include "apps/ctl/ctl_print.h"

#include <stdio.h>
#include <string.h>

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
