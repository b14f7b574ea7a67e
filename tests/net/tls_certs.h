/*
 * Certificates for tests of TLS, made when the program starts, in a folder that
 * vanishes with it.
 */
#pragma once

/* The folder; files in it: NAME.pem and NAME.key. */
#define CERT_FILES                                                             \
	CERT("ca", "Test CA", NULL)                                            \
	CERT("other-ca", "Other CA", NULL)                                     \
	CERT("server", "server", "DNS:server.test,IP:10.0.0.1")                \
	CERT("wild", "wild", "DNS:*.wild.test")                                \
	CERT("www", "www", "DNS:www.wild.test")                                \
	CERT("expired", "expired", "DNS:server.test,IP:10.0.0.1")              \
	CERT("alien", "alien", "DNS:server.test,IP:10.0.0.1")                  \
	CERT("client", "client 7", "DNS:client.test")

/* Makes the files, once. Fails the test if it cannot. */
void certs_make(void);
/*
 * Writes a file with the certificate of "server" and n others that it does not
 * need, of about 400 bytes. Returns its path.
 */
const char *certs_chain(unsigned n);
/* The path of a file, "server.pem"; valid until the program ends. */
const char *cert_path(const char *file);
