//! A live TCP service, and a client that measures how long it is unavailable.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Program that answers every line with its own pid in front. It is in Perl, because every account
/// can run that.
const PROGRAM: &str = r#"
use IO::Socket::INET;
my $port = IO::Socket::INET->new(
    LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 64, ReuseAddr => 1,
) or die $@;
while (my $caller = $port->accept) {
    while (my $line = <$caller>) { print $caller "$$ $line"; }
    close $caller;
}
"#;

/// Number of answers of the next process after which it counts as settled.
const SETTLED: u64 = 50;

#[derive(Debug, Clone, Copy)]
pub struct Echo {
    port: u16,
}

/// The observations of a client that sends requests all the time.
#[derive(Debug, Clone, Copy)]
pub struct Availability {
    /// Longest time between two answers.
    pub away: Duration,
    pub answers: u64,
    /// Pid in the last answer.
    pub last: u64,
}

impl Default for Echo {
    fn default() -> Self {
        Self::new()
    }
}

impl Echo {
    /// Creates a service on a port that is free now.
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        Self { port }
    }

    pub fn command(self) -> [String; 4] {
        let number = self.port.to_string();
        ["/usr/bin/perl", "-e", PROGRAM, &number].map(str::to_owned)
    }

    /// Returns the pid of the process that answers.
    pub fn ask(self) -> Option<u64> {
        let limit = Duration::from_millis(500);
        let address = ([127, 0, 0, 1], self.port).into();
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        stream.write_all(b"hello\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        let (pid, text) = line.trim_end().split_once(' ')?;
        (text == "hello").then(|| pid.parse().ok())?
    }

    /// Sends requests until another process than the first has answered for a while, or until the
    /// limit.
    pub fn keep_asking(self, first: u64, limit: Duration) -> Availability {
        let (mut at, deadline) = (Instant::now(), Instant::now() + limit);
        let mut seen = Availability {
            away: Duration::ZERO,
            answers: 0,
            last: first,
        };
        let mut after = 0;
        while after < SETTLED && Instant::now() < deadline {
            if let Some(answering) = self.ask() {
                seen.away = seen.away.max(at.elapsed());
                at = Instant::now();
                seen.answers += 1;
                seen.last = answering;
                after += u64::from(answering != first);
            }
            std::thread::yield_now();
        }
        seen
    }
}
