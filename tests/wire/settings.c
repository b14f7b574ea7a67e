/* The impairments of a wire by name. */
#include "tests/wire/settings.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define S	   OPT_NS_PER_S
#define AT(member) OPT_AT(struct wire_conf, member)

struct queue_limit {
	uint64_t pkts, bytes; /* the other is 0 */
};

/* Frames, or bytes with a B behind them; sets two members of the conf. */
static int read_queue(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	struct queue_limit *out = (void *)((char *)base + opt->at.offset);
	size_t len = strlen(text);
	char digits[24];
	uint64_t n;

	if (len > 0 && len < sizeof(digits) && text[len - 1] == 'B') {
		memcpy(digits, text, len - 1);
		digits[len - 1] = '\0';
		if (opt_parse_number(digits, 1, UINT64_C(1) << 40, &n) < 0)
			return -EINVAL;
		*out = (struct queue_limit){.bytes = n};
		return 0;
	}
	if (opt_parse_number(text, 1, 1000000, &n) < 0)
		return -EINVAL;
	*out = (struct queue_limit){.pkts = n};
	return 0;
}
static_assert(offsetof(struct wire_conf, queue_bytes) ==
			      offsetof(struct wire_conf, queue_pkts) + 8 &&
		      offsetof(struct wire_conf, mark_bytes) ==
			      offsetof(struct wire_conf, mark_pkts) + 8,
	      "a struct queue_limit each");

#define FRAMES "frames from 1 to 1000000, or bytes with a B behind them"

static const struct opt rows[] = {
	{"loss", OPT_PERCENT, AT(loss), "PERCENT", NULL, 0, 100 * S,
	 .help = "Frames that are lost", .example = "1"},
	{"delay", OPT_MS, AT(delay_ns), "MS", NULL, 0, 60000 * S,
	 .help = "In each direction: a round trip takes twice as long",
	 .example = "10"},
	{"jitter", OPT_MS, AT(jitter_ns), "MS", NULL, 0, 60000 * S,
	 .help = "Added to the delay, evenly from 0 to MS; never reorders",
	 .example = "2"},
	{"reorder", OPT_PERCENT, AT(reorder), "PERCENT", NULL, 0, 100 * S,
	 .help = "Frames held back so that later ones overtake them",
	 .example = "0.5"},
	{"reorder-by", OPT_MS, AT(reorder_by_ns), "MS", "1", 0, 60000 * S,
	 .help = "Delay of a reordered frame"},
	{"duplicate", OPT_PERCENT, AT(duplicate), "PERCENT", NULL, 0, 100 * S,
	 .help = "Frames that arrive twice", .example = "0.1"},
	{"corrupt", OPT_PERCENT, AT(corrupt), "PERCENT", NULL, 0, 100 * S,
	 .help = "Frames with one bit flipped behind the Ethernet header",
	 .example = "0.1"},
	{"rate", OPT_MBIT, AT(rate_bps), "MBIT", NULL, S / 1000, 400000 * S,
	 .help = "Bits a second, counted from the Ethernet header on; 0: no "
		 "limit",
	 .example = "100", .or_zero = true},
	{"queue", OPT_CUSTOM, AT(queue_pkts), "FRAMES|BYTES", "1000",
	 .help = "Length of the queue at the rate, the frame being sent "
		 "included; when it is full, frames are dropped",
	 .read = read_queue, .expected = FRAMES, .example = "100 or 64000B"},
	{"mark", OPT_CUSTOM, AT(mark_pkts), "FRAMES|BYTES", NULL,
	 .help = "Queue length from which ECN-capable packets are marked (RFC "
		 "3168; default: none are)",
	 .read = read_queue, .expected = FRAMES, .example = "20 or 30000B"},
	/* RFC 791: every link carries 68 bytes. */
	{"path-mtu", OPT_NUMBER, AT(mtu), "BYTES", NULL, 68, 9000,
	 .help = "Longer IP packets do not pass; 0: no limit",
	 .example = "1000", .or_zero = true},
	{"too-big", OPT_CHOICE, AT(send_too_big), "drop|report", "drop",
	 .help = "Report packets beyond --path-mtu to their senders by ICMP "
		 "or ICMPv6, or drop them silently"},
	{"down-at", OPT_SECONDS, AT(down_ns), "SECONDS", NULL, 0, OPT_DAY_NS,
	 .help = "The link goes down: nothing arrives and nothing leaves",
	 .example = "2"},
	{"up-at", OPT_SECONDS, AT(up_ns), "SECONDS", NULL, 0, OPT_DAY_NS,
	 .help = "The link comes back", .example = "3"},
};

OPT_SET(wire_settings, rows, 0x1000, NULL)

const struct argp wire_settings_argp = OPT_ARGP(wire_settings);

void wire_settings_init(struct wire_conf *conf)
{
	wire_conf_init(conf);
	opt_set_defaults(rows, OPT_COUNT(rows), conf);
}

int wire_settings_apply(char *words, struct wire_conf *conf,
			struct opt_error *error)
{
	char *save = NULL;

	if (!*words)
		return opt_expect(error, "key=value,...");
	for (char *word = strtok_r(words, ",", &save); word;
	     word = strtok_r(NULL, ",", &save))
		if (opt_set_key(rows, OPT_COUNT(rows), word, conf, error) < 0)
			return -EINVAL;
	return 0;
}

bool wire_setting_up_follows_down(const struct wire_conf *conf)
{
	return conf->up_ns == WIRE_NEVER || conf->up_ns > conf->down_ns;
}
