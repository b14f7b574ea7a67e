"""Certificates of a CA of the test, and contexts of Python's ssl that trust it."""

import ssl

from harness import command

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
NEW_RSA = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]


def make_ca(env, name="ca"):
    ca = env.scratch / f"{name}.pem"
    if not ca.exists():
        command("openssl", "req", "-x509", *NEW_KEY, "-subj", f"/CN={name} of tests", "-addext",
                "keyUsage=critical,keyCertSign", "-keyout", env.scratch / f"{name}.key", "-out", ca)
    return ca


def make_pair(env, name, *alternatives, subject=None, ca="ca", new_key=NEW_KEY):
    """Makes NAME.pem and NAME.key, signed by the CA, with alternative names as in DNS:a.test."""
    signer = make_ca(env, ca)
    cert, key = env.scratch / f"{name}.pem", env.scratch / f"{name}.key"
    request, extensions = env.scratch / "request", env.scratch / "extensions"
    lines = ["subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
    if alternatives:
        lines.append(f"subjectAltName={','.join(alternatives)}")
    extensions.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    command("openssl", "req", *new_key, "-utf8", "-subj", f"/CN={subject or name}", "-keyout", key,
            "-out", request)
    command("openssl", "x509", "-req", "-in", request, "-CA", signer, "-CAkey",
            signer.with_suffix(".key"), "-CAcreateserial", "-days", "2", "-extfile", extensions,
            "-out", cert)
    return cert, key


def client_context(env, ca="ca"):
    """Trusts the CA of the test; as strict as Python 3.13 is by default."""
    context = ssl.create_default_context(cafile=env.scratch / f"{ca}.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def server_context(cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
