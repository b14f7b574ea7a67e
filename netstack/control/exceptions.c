/*
 * The exception path of a link, set while the program runs.
 *
 * The control thread reads the rule and opens its interface here; then each
 * shard in turn starts to use it. If a shard does not respond, all of them keep
 * the old rule.
 */
#include "netstack/control/control_priv.h"
#include "netstack/link/exception.h"
#include "netstack/options/opt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- on the shards ---- */

struct change {
	_Atomic bool taken; /* by the shard, or back by the asking thread */
	unsigned link;
	struct net_exception *exception; /* held until then */
};

static bool use_step(void *data)
{
	struct change *change = data;

	if (atomic_exchange(&change->taken, true))
		return true;
	net_exception_use(change->link, change->exception);
	net_exception_put(change->exception);
	return true;
}

/* exception, or NULL, is borrowed. After an error the shard has not taken it,
 * and will not. */
static int use_on(unsigned shard, unsigned link,
		  struct net_exception *exception)
{
	struct net_ask *ask = net_ask_new(use_step, sizeof(struct change));
	struct change *change;
	int err;

	if (!ask)
		return -ENOMEM;
	change = (void *)ask->data;
	change->link = link;
	change->exception = net_exception_get(exception);
	err = net_ask_run(ask, shard);
	if (err < 0 && atomic_exchange(&change->taken, true))
		err = 0;
	else if (err < 0)
		net_exception_put(exception);
	net_ask_put(ask);
	return err;
}

/* Returns NULL, or what is wrong. exception, or NULL, is owned. */
static cJSON *use_exception(unsigned link, struct net_exception *exception)
{
	struct net_exception *before = net_exception_now(link);
	unsigned n = net_ask_shards(), s = 0;
	int err = n ? 0 : -EAGAIN;

	while (err == 0 && s < n) {
		err = use_on(s, link, exception);
		s += err == 0;
	}
	if (err == 0) {
		net_exception_settle(link, exception);
		return NULL;
	}
	for (unsigned back = 0; back < s; back++)
		use_on(back, link, before);
	net_exception_put(exception);
	return net_control_ask_error(s, err);
}

/* ---- the command ---- */

static cJSON *link_json(unsigned link)
{
	const struct net_exception *now = net_exception_now(link);
	cJSON *to = cJSON_CreateObject();

	cJSON_AddNumberToObject(to, "link", link + 1);
	cJSON_AddStringToObject(to, "exception", now ? now->text : "off");
	return to;
}

static cJSON *show_exceptions(void)
{
	cJSON *to = cJSON_CreateObject();
	cJSON *all = cJSON_AddArrayToObject(to, "exceptions");

	for (unsigned i = 0; i < net_exception_links(); i++)
		cJSON_AddItemToArray(all, link_json(i));
	return to;
}

/* Reads "N," in front of a rule, from 1; *text moves on. 0: no such link. */
static unsigned read_link(const char **text)
{
	size_t digits = strspn(*text, "0123456789");
	char number[8];
	uint64_t n;

	if (!digits || (*text)[digits] != ',')
		return 1;
	if (digits >= sizeof(number))
		return 0;
	snprintf(number, sizeof(number), "%.*s", (int)digits, *text);
	*text += digits + 1;
	return opt_parse_number(number, 1, net_exception_links(), &n) == 0
		       ? (unsigned)n
		       : 0;
}

static cJSON *set_exception(const char *params)
{
	const char *text = params;
	struct net_exception *exception = NULL;
	unsigned link = read_link(&text);
	char why[NET_EXCEPTION_TEXT + 256];
	cJSON *wrong;

	if (!net_exception_links())
		return net_control_ask_error(0, -EAGAIN);
	if (!link)
		return net_control_error("'%.20s': expected a link from 1 to "
					 "%u, a comma and a rule",
					 params, net_exception_links());
	if (strcmp(text, "off") != 0 &&
	    net_exception_make(link - 1, text, &exception, why, sizeof(why)) <
		    0)
		return net_control_error("%s", why);
	wrong = use_exception(link - 1, exception);
	return wrong ? wrong : link_json(link - 1);
}

static cJSON *show_or_set_exceptions(const char *params)
{
	return params ? set_exception(params) : show_exceptions();
}

const struct net_command net_exception_commands[] = {
	{"/coronet/exception",
	 "What the kernel gets of each link. Parameter: [LINK,]RULE, in the "
	 "form of --exception, sets this; [LINK,]off ends it",
	 show_or_set_exceptions},
	{0},
};
