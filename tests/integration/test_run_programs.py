#!/usr/bin/env python3
"""Many unmodified programs of Debian on the stack, by coronet-run.

Usage: test_run_programs.py BUILD_DIR [BEGINNING_OF_A_NAME...]

curl fetches from file servers: the kernel's curl over a TAP, and one on a stack of its own over
memif. Clients use a kernel server over a TAP.
"""

import contextlib
import functools
import glob
import hashlib
import os
import pathlib
import re
import signal
import socket
import string
import subprocess

from harness import WAIT_MAX_S, Skip, check, command, eventually, main
from test_gateway import SQL, postgres
from test_run import (BENCHMARK, KERNELS, OURS, Far, OnTap, benchmarked, folder_of, kernel_server,
                      need_programs, nginx_command, redis_server)

PORT, KERNELS_PORT = 8080, 8081

# ---- file servers ----

APACHE = """
ServerRoot $FOLDER
ServerName localhost
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
Listen $OURS:8080
PidFile $FOLDER/apache.pid
ErrorLog /dev/stderr
DocumentRoot $FOLDER
"""

LIGHTTPD = """
server.document-root = "$FOLDER"
server.bind = "$OURS"
server.port = 8080
"""

SQUID = """
http_port $OURS:8080 accel defaultsite=$KERNELS no-vhost
cache_peer $KERNELS parent 8081 0 no-query originserver
http_access allow all
pid_filename none
cache_log /dev/null
access_log none
cache_mem 64 MB
memory_cache_shared off
shutdown_lifetime 1 seconds
"""

ASYNCIO = """
import asyncio, signal
async def serve(reader, writer):
    request = await reader.readuntil(b"\\r\\n\\r\\n")
    path = request.split()[1].split(b"?")[0].decode()
    with open("$FOLDER" + path, "rb") as file:
        data = file.read()
    writer.write(b"HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(data) + data)
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "$OURS", 8080)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.close)
    try:
        await server.serve_forever()
    except asyncio.CancelledError:
        pass
asyncio.run(main())
"""

NODE = """
const fs = require("fs"), url = require("url");
require("http").createServer((request, response) => {
    fs.createReadStream("$FOLDER" + url.parse(request.url).pathname).pipe(response);
}).listen(8080, "$OURS");
"""

RUBY = """
require "webrick"
server = WEBrick::HTTPServer.new(BindAddress: "$OURS", Port: 8080, DocumentRoot: "$FOLDER",
                                 AccessLog: [])
trap("TERM") { server.shutdown }
server.start
"""

JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.*;
import java.util.concurrent.Executors;
class Server {
    public static void main(String[] words) throws Exception {
        var server = HttpServer.create(new InetSocketAddress("$OURS", 8080), 100);
        server.createContext("/", exchange -> {
            Path path = Paths.get("$FOLDER" + exchange.getRequestURI().getPath());
            exchange.sendResponseHeaders(200, Files.size(path));
            try (var out = exchange.getResponseBody()) {
                Files.copy(path, out);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
"""

PERL = """
use IO::Socket;
my $$server = IO::Socket::INET->new(LocalAddr => "$OURS", LocalPort => 8080, Listen => 100,
                                   ReuseAddr => 1) or die;
while (my $$client = $$server->accept()) {
    my ($$path) = <$$client> =~ m,GET (/\\w+),;
    while (<$$client> =~ /\\S/) {
    }
    open(my $$file, "<", "$FOLDER$$path") or die;
    print $$client "HTTP/1.0 200 OK\\r\\nContent-Length: ", -s $$file, "\\r\\n\\r\\n";
    print $$client $$_ while (<$$file>);
    close($$client);
}
"""

GUILE = """
(use-modules (web server) (web request) (web uri) (ice-9 binary-ports))
(run-server
  (lambda (request body)
    (values '((content-type . (application/octet-stream)))
            (call-with-input-file
              (string-append "$FOLDER" (uri-path (request-uri request)))
              get-bytevector-all #:binary #t)))
  'http '(#:host "$OURS" #:port 8080))
"""

STUNNEL = """
foreground = yes
pid =
cert = $FOLDER/cert
[s]
accept = $OURS:8080
connect = $KERNELS:8081
"""

# Name: the command, its configuration.
SERVERS = {
    "apache2": ("apache2 -X -f $FOLDER/program", APACHE),
    "lighttpd": ("lighttpd -D -f $FOLDER/program", LIGHTTPD),
    "squid": ("squid -N -n $NAME -f $FOLDER/program", SQUID),
    "stunnel": ("stunnel4 $FOLDER/program", STUNNEL),
    "asyncio": ("python3 $FOLDER/program", ASYNCIO),
    "node": ("node $FOLDER/program", NODE),
    "ruby": ("ruby $FOLDER/program", RUBY),
    "java": ("java $FOLDER/Server.java", JAVA),
    "php": ("php -S $OURS:8080 -t $FOLDER", ""),
    "perl": ("perl $FOLDER/program", PERL),
    "guile": ("guile --no-auto-compile $FOLDER/program", GUILE),
    "openssl s_server": ("openssl s_server -accept $OURS:8080 -WWW -cert $FOLDER/cert", ""),
}
TLS = ("stunnel", "openssl s_server")
# coronet-run's message about a child that would use the stack.
CHILD = "only the process that coronet-run started"
BEHIND = ("squid", "stunnel")  # these have a kernel server behind them


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ssh_key(path):
    """Makes a key, and the other files that sshd needs."""
    command("ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", path)
    with contextlib.suppress(OSError):
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)


def filled(text, folder, values=()):
    return string.Template(text).substitute({
        "FOLDER": folder, "OURS": OURS, "KERNELS": KERNELS,
        "NAME": folder.name.replace("_", "x"), **dict(values)})


def serving(name, folder):
    """Returns the words that start a server."""
    words, conf = (filled(text, folder) for text in SERVERS[name])
    words = words.split()
    need_programs(words[0], "curl", "nginx")
    (folder / ("Server.java" if name == "java" else "program")).write_text(conf)
    if name in TLS:
        certificate(folder)
    return words


def certificate(folder):
    need_programs("openssl")
    command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test",
            "-keyout", folder / "key", "-out", folder / "pem", "-days", 2)
    (folder / "cert").write_text((folder / "key").read_text() + (folder / "pem").read_text())


def curl(name, folder):
    """Returns the words that fetch four large files at once, and a hundred small ones, four at a
    time."""
    url = f"{'https' if name in TLS else 'http'}://{OURS}:{PORT}"
    words = ["curl", "-sSk", "-Z", "--parallel-max", "4"]
    large = [word for n in range(4) for word in ("-o", folder / f"got{n}", f"{url}/big")]
    return [*words, *large], [*words, *[f"{url}/small"] * 100]


def complete(folder):
    big = (folder / "big").read_bytes()
    for n in range(4):
        check((folder / f"got{n}").read_bytes() == big, f"file {n} differs")
        (folder / f"got{n}").unlink()


def check_end(program):
    program.signal(signal.SIGTERM)
    status = program.wait(WAIT_MAX_S)
    check(status in (0, -signal.SIGTERM, 128 + signal.SIGTERM), f"{status}: {program.story()}")


def serves(env, name):
    folder = folder_of(env)
    words = serving(name, folder)
    large, small = curl(name, folder)
    with kernel_server(env, KERNELS_PORT, *nginx_command(folder, KERNELS_PORT)), \
            OnTap(env).server(PORT, *words, cwd=folder) as server:
        command(*large)
        complete(folder)
        client = env.start(small)
        check(client.wait(WAIT_MAX_S) == 0 and client.output("stdout") == "hello\n" * 100,
              f"{client.story()}\n{server.story()}")
        check_end(server)


def serves_over_memif(env, name):
    folder = folder_of(env)
    words = serving(name, folder)
    large, small = curl(name, folder)
    with Far(env, *words, cwd=folder) as far:
        far.ask(*large)
        complete(folder)
        check(far.ask(*small).output("stdout") == "hello\n" * 100, far.server.story())


# ---- clients ----

ASYNCIO_CLIENT = """
import asyncio, hashlib
async def fetch(n):
    reader, writer = await asyncio.open_connection("$HOST", $PORT)
    writer.write(b"GET /big HTTP/1.0\\r\\n\\r\\n")
    data = await reader.read()
    writer.close()
    return hashlib.sha256(data.split(b"\\r\\n\\r\\n", 1)[1]).hexdigest()
async def main():
    print(*set(await asyncio.gather(*map(fetch, range(4)))))
asyncio.run(main())
"""

THREADS_CLIENT = """
import concurrent.futures, hashlib, urllib.request
def fetch(n):
    return hashlib.sha256(urllib.request.urlopen("$URL/big").read()).hexdigest()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(*set(pool.map(fetch, range(4))))
"""

NODE_CLIENT = """
const hash = require("crypto").createHash("sha256");
require("http").get("$URL/big", response => {
    response.on("data", data => hash.update(data));
    response.on("end", () => console.log(hash.digest("hex")));
});
"""

RUBY_CLIENT = """
require "net/http"
require "digest"
threads = 4.times.map do
  Thread.new { Digest::SHA256.hexdigest(Net::HTTP.get(URI("$URL/big"))) }
end
puts threads.map(&:value).uniq
"""

JAVA_CLIENT = """
import java.net.URI;
import java.net.http.*;
import java.security.MessageDigest;
import java.util.HexFormat;
class Client {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("$URL/big")).build();
        var data = HttpClient.newHttpClient()
            .sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()).get().body();
        System.out.println(HexFormat.of().formatHex(
            MessageDigest.getInstance("SHA-256").digest(data)));
    }
}
"""

PERL_CLIENT = """
use IO::Socket;
use Digest::SHA;
my $$server = IO::Socket::INET->new("$HOST:$PORT") or die;
print $$server "GET /big HTTP/1.0\\r\\n\\r\\n";
$$server->flush();
while (<$$server> =~ /\\S/) {
}
print Digest::SHA->new(256)->addfile($$server)->hexdigest();
"""

PHP_CLIENT = """<?php echo hash("sha256", file_get_contents("$URL/big"));"""

GUILE_CLIENT = """
(use-modules (web client) (rnrs bytevectors) (ice-9 receive))
(receive (response body) (http-get "$URL/text" #:decode-body? #f)
  (display (utf8->string body)))
"""

# Name: the command, its program, its output, which is None if it stores a file.
CLIENTS = {
    "wrk": ("wrk -t2 -c16 -d1 $URL/small", "", r"[1-9]\d* requests in (?![^\0]*Socket errors)"),
    "siege": ("siege -b -c8 -r25 $URL/small", "", r'"transactions":\s+200,'),
    "ab": ("ab -n400 -c16 $URL/small", "",
           r"Complete requests: +400\nFailed requests: +0\n"),
    "h2load": ("h2load --h1 -n400 -c8 -t2 $URL/small", "", "400 succeeded, 0 failed, 0 errored"),
    "w3m": ("w3m -dump $URL/text", "", "hello"),
    "lynx": ("lynx -dump $URL/text", "", "hello"),
    "aria2c": ("aria2c -q -x4 -s4 -k1M --file-allocation=none -o got $URL/big", "", None),
    "asyncio": ("python3 $FOLDER/program", ASYNCIO_CLIENT, "^$SHA256$$"),
    "python3 threads": ("python3 $FOLDER/program", THREADS_CLIENT, "^$SHA256$$"),
    "node": ("node $FOLDER/program", NODE_CLIENT, "^$SHA256$$"),
    "ruby": ("ruby $FOLDER/program", RUBY_CLIENT, "^$SHA256$$"),
    "java": ("java $FOLDER/Client.java", JAVA_CLIENT, "^$SHA256$$"),
    "perl": ("perl $FOLDER/program", PERL_CLIENT, "^$SHA256$$"),
    "php": ("php $FOLDER/program", PHP_CLIENT, "^$SHA256$$"),
    "guile": ("guile --no-auto-compile $FOLDER/program", GUILE_CLIENT, "hello"),
}


def asking(name, folder, host, port):
    """Returns the words that start a client, and a function that checks it after its end."""
    words, program, wanted = CLIENTS[name]
    values = {"HOST": host, "PORT": port, "URL": f"http://{host}:{port}",
              "SHA256": sha256(folder / "big")}
    words = filled(words, folder, values).split()
    need_programs(words[0], "nginx")
    (folder / "text").write_text("hello\n")
    (folder / ("Client.java" if name == "java" else "program")).write_text(
        filled(program, folder, values))

    def look(text):
        if wanted is None:
            check((folder / "got").read_bytes() == (folder / "big").read_bytes(), "differs")
            (folder / "got").unlink()
        else:
            check(re.search(filled(wanted, folder, values), text, re.MULTILINE), text)
    return words, look


def asks(env, name):
    folder = folder_of(env)
    words, look = asking(name, folder, KERNELS, KERNELS_PORT)
    with kernel_server(env, KERNELS_PORT, *nginx_command(folder, KERNELS_PORT)):
        program = OnTap(env).start(*words, cwd=folder, env={"HOME": str(folder)})
        status = program.wait(WAIT_MAX_S)
        check(status == 0, f"status {status}: {program.story()}")
        look(program.output("stdout") + program.output("stderr"))


def asks_over_memif(env, name):
    folder = folder_of(env)
    words, look = asking(name, folder, OURS, PORT)
    with Far(env, *nginx_command(folder, PORT)) as far:
        client = far.ask(*words, cwd=folder)
        look(client.output("stdout") + client.output("stderr"))


# ---- other protocols ----

def redis(env):
    need_programs("redis-server", "redis-benchmark")
    threads = ["--io-threads", 4, "--io-threads-do-reads", "yes"]
    benchmark = ["redis-benchmark", "--threads", 2, *BENCHMARK, "-h"]
    with OnTap(env).server(6379, *redis_server(OURS), *threads) as server:
        benchmarked(command(*benchmark, OURS))
        check_end(server)
    with kernel_server(env, 6379, *redis_server("0.0.0.0")):
        benchmarked(OnTap(env).client(*benchmark, KERNELS))
    with Far(env, *redis_server(OURS), *threads) as far:
        benchmarked(far.ask(*benchmark, OURS).output("stdout"))


def pgbench(env):
    """Debian's pgbench is a script that executes this program, which would then use the kernel."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))
    need_programs(found[-1] if found else "pgbench")
    script = env.scratch / "script"
    script.write_text(f"SELECT 1 / (host(inet_client_addr()) = '{OURS}')::int;\n")
    command("ip", "addr", "add", f"{KERNELS}/32", "dev", "lo")  # it binds before the TAP exists
    with postgres(env, 10, 0):
        words = ["-h", KERNELS, "-p", SQL, "-U", "test", "postgres"]
        command("pgbench", "-i", "-q", *words)
        text = OnTap(env).client(found[-1], "-j", 2, "-c", 4, "-t", 50, "-b", "tpcb-like", "-f",
                                 script, *words, env={"PGGSSENCMODE": "disable"})
        check("processed: 200/200" in text and "failed transactions: 0" in text, text)
    command("ip", "addr", "del", f"{KERNELS}/32", "dev", "lo")


def mosquitto(env):
    need_programs("mosquitto", "mosquitto_pub", "mosquitto_sub")
    folder = folder_of(env)
    (folder / "conf").write_text(f"listener 1883 {OURS}\nallow_anonymous true\nuser root\n")
    words = ["mosquitto", "-c", folder / "conf"]
    publish = ["mosquitto_pub", "-h", OURS, "-r", "-q", "1", "-t", "topic", "-m", "hello"]
    subscribe = ["mosquitto_sub", "-h", OURS, "-C", "1", "-t", "topic"]
    with OnTap(env).server(1883, *words) as server:
        command(*publish)
        check(command(*subscribe) == "hello\n", "another message")
        check_end(server)
    with Far(env, *words) as far:
        far.ask(*publish)
        check(far.ask(*subscribe).output("stdout") == "hello\n", "another message")


def ncat(env):
    """ncat serves one client after the other, and closes each connection with its client."""
    need_programs("ncat")
    with OnTap(env).server(7000, "ncat", "-lk", OURS, 7000) as server:
        for _ in range(3):
            with socket.create_connection((OURS, 7000), WAIT_MAX_S) as sock:
                sock.sendall(b"hello\n")
                sock.shutdown(socket.SHUT_WR)
                check(sock.recv(1) == b"", "no end of the stream")
        eventually(lambda: server.output("stdout") == "hello\n" * 3, WAIT_MAX_S, server.story)
        check_end(server)


def typed(env, *words):
    """Fetches by a client that copies its input and its output."""
    folder = folder_of(env)
    need_programs(words[0], "nginx")
    program = OnTap(env).start(*words, stdin=subprocess.PIPE, cwd=folder)
    program.process.stdin.write(b"GET /small HTTP/1.0\n\n")
    program.process.stdin.flush()
    eventually(lambda: "hello" in program.output("stdout") or not program.alive(), WAIT_MAX_S,
               program.story)
    check("hello" in program.output("stdout"), program.story())
    program.process.stdin.close()
    program.wait(WAIT_MAX_S)


def typists(env):
    folder = folder_of(env)
    certificate(folder)
    with kernel_server(env, 8081, *nginx_command(folder, 8081)), kernel_server(
            env, 8443, "openssl", "s_server", "-accept", "8443", "-WWW", "-cert", folder / "cert",
            cwd=folder):
        typed(env, "telnet", KERNELS, 8081)
        typed(env, "ncat", KERNELS, 8081)
        typed(env, "socat", "-", f"TCP:{KERNELS}:8081")
        typed(env, "openssl", "s_client", "-quiet", "-connect", f"{KERNELS}:8443")


VSFTPD = """
listen=YES
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root=$FOLDER/root
secure_chroot_dir=$FOLDER/root
listen_port=2121
pasv_enable=YES
connect_from_port_20=NO
seccomp_sandbox=NO
"""


def active_ftp(env):
    """curl's client listens, and the server connects to it."""
    need_programs("vsftpd", "curl")
    folder = folder_of(env)
    (folder / "root").mkdir()
    (folder / "root" / "big").write_bytes((folder / "big").read_bytes())
    (folder / "conf").write_text(filled(VSFTPD, folder))
    with kernel_server(env, 2121, "vsftpd", folder / "conf"):
        for mode in (["-P", "-"], []):
            OnTap(env).client("curl", "-sS", *mode, "-o", folder / "got",
                              f"ftp://{KERNELS}:2121/big")
            check((folder / "got").read_bytes() == (folder / "big").read_bytes(), "differs")
            (folder / "got").unlink()


def ssh(env):
    need_programs("ssh", "sshd", "ssh-keygen")
    if os.getuid() or "4294967295" not in pathlib.Path("/proc/self/uid_map").read_text():
        raise Skip("sshd becomes another user")
    folder = folder_of(env)
    for key in ("host_key", "key"):
        ssh_key(folder / key)
    words = [f"AuthorizedKeysFile={folder}/key.pub", "StrictModes=no", "PermitRootLogin=yes",
             "UsePAM=no", "PidFile=none"]
    with kernel_server(env, 2222, "/usr/sbin/sshd", "-D", "-e", "-p", 2222, "-h",
                       folder / "host_key", *[word for each in words for word in ("-o", each)]):
        text = OnTap(env).client(
            "ssh", "-p", 2222, "-i", folder / "key", "-o", "BatchMode=yes", "-o",
            "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", f"root@{KERNELS}",
            f"echo $SSH_CLIENT; sha256sum < {folder}/big")
        check(text.startswith(OURS) and sha256(folder / "big") in text, text)


def rsync_uploads(env):
    """rsync uploads; its downloads would read the socket in a child."""
    need_programs("rsync")
    folder = folder_of(env)
    (folder / "conf").write_text(f"use chroot=no\n[m]\npath={folder}\nread only=no\nuid=0\ngid=0\n")
    with kernel_server(env, 8730, "rsync", "--daemon", "--no-detach", "--port=8730",
                       f"--config={folder}/conf"):
        OnTap(env).client("rsync", "-q", folder / "big", f"rsync://{KERNELS}:8730/m/copy")
        check((folder / "big").read_bytes() == (folder / "copy").read_bytes(), "differs")
        program = OnTap(env).start("rsync", "-q", f"rsync://{KERNELS}:8730/m/big", folder / "got")
        check(program.wait(WAIT_MAX_S) != 0 and CHILD in program.output("stderr"), program.story())


def git_clones(env):
    need_programs("git")
    folder = folder_of(env)
    def git(*words):
        command("git", "-C", folder / "from", "-c", "user.name=t", "-c", "user.email=t@t", *words)
    command("git", "init", "-q", folder / "from")
    (folder / "from" / "big").write_bytes((folder / "big").read_bytes())
    git("add", "big")
    git("commit", "-qm", "all")
    with kernel_server(env, 9418, "git", "daemon", "--export-all", f"--base-path={folder}"):
        OnTap(env).client("git", "clone", "-q", f"git://{KERNELS}/from", folder / "to")
        check((folder / "to" / "big").read_bytes() == (folder / "big").read_bytes(), "differs")


# ---- servers whose children serve ----

VSFTPD_ON_STACK = VSFTPD.replace("2121", "8080")

NGINX_MASTER = """
daemon off; worker_processes 1; pid $FOLDER/pid; user root; error_log stderr;
events { }
http { server { listen $OURS:8080; root $FOLDER; } }
"""

GUNICORN = """
def app(environment, start):
    start("200 OK", [])
    return [b"hello"]
"""

RSYNCD = """
use chroot = no
[m]
path = $FOLDER
"""

SSHD = """
Port 8080
ListenAddress $OURS
HostKey $FOLDER/host_key
PidFile none
"""

# Name: the command, its configuration, coronet-run's advice when a client has come.
FORKERS = {
    "nginx master": ("nginx -e stderr -c $FOLDER/program", NGINX_MASTER, "master_process off"),
    "apache2 children": ("apache2 -D FOREGROUND -f $FOLDER/program", APACHE, "apache2 -X"),
    "gunicorn": ("gunicorn -b $OURS:8080 --threads 2 program:app", GUNICORN, "behind a proxy"),
    "sshd": ("/usr/sbin/sshd -D -e -f $FOLDER/program", SSHD, "behind a proxy"),
    "vsftpd": ("vsftpd $FOLDER/program", VSFTPD_ON_STACK, "behind a proxy"),
    "rsync": ("rsync --daemon --no-detach --port=8080 --address=$OURS --config=$FOLDER/program",
              RSYNCD, "behind a proxy"),
    "git daemon": ("/usr/lib/git-core/git-daemon --listen=$OURS --port=8080 --export-all", "",
                   "behind a proxy"),
    "socat fork": ("socat TCP-LISTEN:8080,bind=$OURS,fork EXEC:cat", "", "behind a proxy"),
    "varnish": ("varnishd -F -a $OURS:8080 -n $FOLDER/varnish -b $KERNELS:8081", "",
                "behind a proxy"),
    "ncat exec": ("ncat -lk --exec /bin/cat $OURS 8080", "", "behind a proxy"),
}


def serves_from_children(env, name):
    """The stack stays with the program, and coronet-run prints its advice once."""
    folder = folder_of(env)
    words, conf, wanted = FORKERS[name]
    words = filled(words, folder).split()
    need_programs(words[0])
    (folder / ("program.py" if name == "gunicorn" else "program")).write_text(filled(conf, folder))
    if name == "sshd":
        ssh_key(folder / "host_key")
    program = OnTap(env).start(*words, cwd=folder)

    def said():
        """Waits for the advice, which comes with the first client at the latest."""
        with contextlib.suppress(OSError), socket.create_connection((OURS, 8080), 1) as sock:
            sock.sendall(b"GET /small HTTP/1.0\r\n\r\n")
        return lines() or not program.alive()

    def lines():
        return [line for line in program.output("stderr").splitlines()
                if CHILD in line]
    try:
        eventually(said, WAIT_MAX_S, program.story)
        check(len(lines()) == 1 and wanted in lines()[0], program.story())
    finally:
        program.signal(signal.SIGTERM)
        program.wait(WAIT_MAX_S)


def static(env):
    need_programs("busybox")
    program = env.start([env.app("coronet-run"), "--link", "ring:r0", "--addr", f"{OURS}/16",
                         "busybox", "httpd", "-f"])
    check(program.wait(WAIT_MAX_S) == 2 and "statically" in program.output("stderr"),
          program.story())


def scripts(env):
    """coronet-run names the program that a script executes, so that the user can run it
    directly."""
    for words, wanted in ((["perl", "-e", "exec 'true'"], "true, which uses the kernel's sockets"),
                          (["perl", "-e", "system 'true'"], None)):
        program = env.start([env.app("coronet-run"), "--link", "ring:r0", "--addr", f"{OURS}/16",
                             *words])
        status, text = program.wait(WAIT_MAX_S), program.output("stderr")
        check(status == 0 and ("executes" in text) == bool(wanted) and (wanted or "") in text,
              program.story())


def cases(env):
    found = {}
    for name in SERVERS:
        found[f"{name} serves"] = functools.partial(serves, env, name)
        if name not in BEHIND:
            found[f"{name} serves over memif"] = functools.partial(serves_over_memif, env, name)
    for name in CLIENTS:
        found[f"{name} asks"] = functools.partial(asks, env, name)
        found[f"{name} asks over memif"] = functools.partial(asks_over_memif, env, name)
    for case in (redis, pgbench, mosquitto, ncat, typists, active_ftp, git_clones, ssh,
                 rsync_uploads, static, scripts):
        found[case.__name__.replace("_", " ")] = functools.partial(case, env)
    for name in FORKERS:
        found[f"{name} serves from children"] = functools.partial(serves_from_children, env, name)
    for name, case in found.items():
        if not env.args or any(name.startswith(arg) for arg in env.args):
            yield name, case


if __name__ == "__main__":
    main(cases)
