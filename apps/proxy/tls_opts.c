/* The options of TLS in coronet-proxy. */
#include "apps/proxy/tls_opts.h"

#include <errno.h>
#include <string.h>

#define AT(what) OPT_AT(struct tls_opts, what)

/* Names of letters, digits and a few more, with one comma between two. */
static int read_alpn(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	const char *at = text;
	size_t len;

	for (;;) {
		len = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR"
				 "STUVWXYZ0123456789/._-");
		if (len == 0 || len > 255)
			return -EINVAL;
		at += len;
		if (*at == '\0')
			break;
		if (*at++ != ',')
			return -EINVAL;
	}
	((struct tls_opts *)base)->alpn = text;
	return 0;
}

static const struct opt rows[] = {
	{"tls-cert", OPT_CUSTOM, AT(pairs), "FILE", .read = tls_pairs_read_cert,
	 .expected = TLS_PAIRS_EXPECTED,
	 .example = "/etc/coronet/example.com.pem",
	 .help = "Certificate of --listen tls:, a PEM file in which those that "
		 "lead to its CA follow (repeatable): the name that a client "
		 "asks for chooses one, else it gets the first"},
	{"tls-key", OPT_CUSTOM, AT(pairs), "FILE", .read = tls_pairs_read_key,
	 .expected = TLS_PAIRS_EXPECTED,
	 .example = "/etc/coronet/example.com.key",
	 .help = "PEM file with the key of the --tls-cert before it (default: "
		 "the file of the certificate)"},
	TLS_PAIRS_OCSP(AT(pairs)),
	TLS_PAIRS_TICKETS(AT(ticket_keys)),
	TLS_PAIRS_KEY_LOG(AT(key_log)),
	TLS_PAIRS_OFFLOAD(AT(offload)),
	{"tls-alpn", OPT_CUSTOM, .arg = "NAME[,...]", .read = read_alpn,
	 .expected = "names of 1 to 255 bytes with commas between them",
	 .example = "h2,http/1.1",
	 .help = "Protocols that the backends speak, in order of preference; "
		 "clients that offer others are refused (default: ALPN is not "
		 "used)"},
	{"tls-min", OPT_CHOICE, AT(min_version), "1.2|1.3", "1.2", NET_TLS_1_2,
	 .help = "Oldest version of TLS that clients may use"},
	{"tls-client-ca", OPT_CUSTOM, AT(client_ca), "FILE",
	 .read = tls_pairs_read_file, .expected = TLS_PAIRS_EXPECTED,
	 .example = "/etc/coronet/clients.pem",
	 .help = "Ask clients for a certificate of the CAs in this PEM file"},
	{"tls-client-cert", OPT_CHOICE, AT(client_cert), "optional|required",
	 NULL, NET_TLS_VERIFY_ASK,
	 .help = "With --tls-client-ca: whether a client may have no "
		 "certificate (default: required)"},
	{"max-handshakes", OPT_NUMBER, AT(max_handshakes), "N", "1024", 1,
	 2000000,
	 .help = "Maximum number of TLS handshakes with clients at a time; "
		 "connections beyond it are reset"},
	{"backend-ca", OPT_CUSTOM, AT(backend_ca), "FILE",
	 .read = tls_pairs_read_file, .expected = TLS_PAIRS_EXPECTED,
	 .example = "/etc/coronet/backends.pem",
	 .help = "PEM file of the CAs that sign the certificates of backends "
		 "with tls=verify (default: the system's)"},
};

OPT_SET(tls_opts, rows, 0x2200, NULL)

const struct argp tls_opts_argp = OPT_ARGP(tls_opts);

void tls_opts_init(struct tls_opts *opts)
{
	*opts = (struct tls_opts){0};
	opt_set_defaults(rows, OPT_COUNT(rows), opts);
}
