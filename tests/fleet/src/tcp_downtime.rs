//! A live TCP service, and a client that measures how long it is unavailable.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Program that answers every line with its own pid and the same line. It is in Perl, which every
/// account can run.
const PERL_PROGRAM: &str = r#"
use IO::Socket::INET;
my $port = IO::Socket::INET->new(
    LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 64, ReuseAddr => 1,
) or die $@;
while (my $caller = $port->accept) {
    while (my $line = <$caller>) { print $caller "$$ $line"; }
    close $caller;
}
"#;

/// Number of responses of another process than the first after which this process counts as
/// available.
const SETTLED_RESPONSES: u64 = 50;

/// The TCP service.
#[derive(Debug, Clone, Copy)]
pub struct Echo {
    port: u16,
}

/// The observations of a client that sends requests all the time.
#[derive(Debug, Clone, Copy)]
pub struct Availability {
    /// Longest time between two responses.
    pub longest_gap: Duration,
    pub response_count: u64,
    /// Pid in the last response.
    pub last_pid: u64,
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
        let port = self.port.to_string();
        ["/usr/bin/perl", "-e", PERL_PROGRAM, &port].map(str::to_owned)
    }

    /// Returns the pid of the process that answers.
    pub fn request_pid(self) -> Option<u64> {
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

    /// Sends requests until another process than `first_pid` has answered for a while, or until the
    /// limit.
    pub fn measure_availability(self, first_pid: u64, limit: Duration) -> Availability {
        let (mut last_response, deadline) = (Instant::now(), Instant::now() + limit);
        let mut availability = Availability {
            longest_gap: Duration::ZERO,
            response_count: 0,
            last_pid: first_pid,
        };
        let mut successor_responses = 0;
        while successor_responses < SETTLED_RESPONSES && Instant::now() < deadline {
            if let Some(pid) = self.request_pid() {
                availability.longest_gap = availability.longest_gap.max(last_response.elapsed());
                last_response = Instant::now();
                availability.response_count += 1;
                availability.last_pid = pid;
                successor_responses += u64::from(pid != first_pid);
            }
            std::thread::yield_now();
        }
        availability
    }
}
