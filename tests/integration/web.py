"""Web servers and clients for tests that put a proxy between them.

nginx runs from a configuration, prefix and ports of its own, in the caller's
network namespace: a system's nginx is neither used nor disturbed.
"""

import hashlib
import os
import shutil
import signal
import socket
import subprocess

from harness import WAIT_MAX_S, Skip, check, eventually

CONFIG = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
worker_processes 1;
worker_rlimit_nofile 20000;
{user}
events {{ worker_connections 19000; }}
{main}
http {{
	access_log off;
	server_tokens off;
	keepalive_requests 100000000;
	keepalive_timeout 600;
	client_header_timeout 600;
	client_body_temp_path {folder}/body;
	proxy_temp_path {folder}/proxy;
	fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi;
	scgi_temp_path {folder}/scgi;
	default_type application/octet-stream;
	sendfile on;
	server {{
		listen {address}:{port} {listen} backlog=16384;
		{pair}
		root {root};
		add_header X-Backend {port} always;
		{gzip_static}
		dav_methods PUT;
		client_max_body_size 0;
		location = /who {{
			return 200 "{who}\\n";
		}}
		location = /small {{
			return 200 "{small}";
		}}
	}}
}}
"""

SMALL = "x" * 128


def need_programs(*programs):
    """Skip the case unless the programs are installed."""
    for program in programs:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            raise Skip(f"{program} is not installed")


def listening(address, port):
    """Whether a server accepts connections there."""
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


class Nginx:
    """A real nginx that can be started, killed and started again."""

    def __init__(self, env, address, port, root=None, proxy_protocol=False, main="",
                 gzip_static=False, pair=()):
        """pair: the files of a certificate and its key, for HTTPS."""
        need_programs("nginx")
        self.env = env
        self.address, self.port = address, port
        self.folder = env.scratch / f"nginx{port}"
        self.folder.mkdir(exist_ok=True)
        self.program = None
        who = "$remote_addr $remote_port"
        if proxy_protocol:
            who = ("$proxy_protocol_addr $proxy_protocol_port "
                   "$proxy_protocol_server_addr $proxy_protocol_server_port")
        (self.folder / "conf").write_text(CONFIG.format(
            folder=self.folder, address=address, port=port, root=root or self.folder,
            listen=" ".join(["proxy_protocol"] * proxy_protocol + ["ssl"] * bool(pair)),
            pair=f"ssl_certificate {pair[0]}; ssl_certificate_key {pair[1]};" if pair else "",
            who=who, small=SMALL, main=main,
            gzip_static="gzip_static on;" if gzip_static else "",
            user="user root;" if os.getuid() == 0 else ""))
        self.start()

    def start(self):
        self.program = self.env.start(
            ["nginx", "-p", self.folder, "-e", self.folder / "error.log",
             "-c", self.folder / "conf"], start_new_session=True,
            env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
        eventually(lambda: listening(self.address, self.port) or not self.program.alive(),
                   WAIT_MAX_S, "nginx does not listen")
        check(self.program.alive(), f"nginx ended: {self.program.story()}")

    def kill(self):
        """Kills master and worker at once; the kernel ends their connections."""
        os.killpg(self.program.process.pid, signal.SIGKILL)
        self.program.process.wait()
        eventually(lambda: not listening(self.address, self.port), WAIT_MAX_S, "nginx lives on")

    def errors(self):
        path = self.folder / "error.log"
        return path.read_text() if path.exists() else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program.alive():
            os.killpg(self.program.process.pid, signal.SIGKILL)
            self.program.process.wait()


def run_curl(*words):
    """Runs curl, which must succeed; returns its output."""
    done = subprocess.run(["curl", "-sS", "--max-time", "120", *map(str, words)], check=False,
                          stdin=subprocess.DEVNULL, capture_output=True)
    check(done.returncode == 0, f"curl {' '.join(map(str, words))}: {done.stderr.decode()}")
    return done.stdout.decode()


def curl_digests(url, count):
    """Downloads `count` times in parallel; returns the SHA-256 of each, and the total bytes."""
    downloads = [subprocess.Popen(["curl", "-sS", "--max-time", "1200", url],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                 for _ in range(count)]
    digests = [hashlib.sha256() for _ in downloads]
    total = 0
    live = dict(zip(downloads, digests))
    while live:
        for download in list(live):
            part = os.read(download.stdout.fileno(), 1 << 20)
            live[download].update(part)
            total += len(part)
            if not part:
                del live[download]
    for download in downloads:
        check(download.wait() == 0, f"curl {url} exited with {download.returncode}")
    return [digest.hexdigest() for digest in digests], total


def random_file(path, size):
    """Writes a file of random bytes; returns its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while size > 0:
            block = os.urandom(min(size, 1 << 20))
            digest.update(block)
            file.write(block)
            size -= len(block)
    return digest.hexdigest()


def wrk_enough(url, connections, requests=10, **options):
    """Runs wrk until it has made `requests` requests without an error; returns the rate.

    A busy machine takes longer: wrk runs again for longer.
    """
    seconds = 1
    while True:
        rate, output, errors = run_wrk(url, connections, seconds, **options)
        check(not errors, f"{connections} connections: {output}")
        if rate * seconds >= requests:
            return rate
        seconds *= 4
        check(seconds < WAIT_MAX_S, f"{connections} connections: {output}")


def run_wrk(url, connections=64, seconds=2, threads=1, extra=()):
    """Returns wrk's requests per second, its output, and errors of any kind."""
    need_programs("wrk")
    done = subprocess.run(
        ["wrk", "-t", str(threads), "-c", str(connections), "-d", f"{seconds}s",
         "--timeout", f"{WAIT_MAX_S}s", "--latency", *extra, url], check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, f"wrk {url}: {done.stdout}")
    rate, errors = 0.0, []
    for line in done.stdout.splitlines():
        if line.startswith("Requests/sec:"):
            rate = float(line.split()[1])
        if "Socket errors" in line or "Non-2xx" in line:
            errors.append(line.strip())
    return rate, done.stdout, errors
