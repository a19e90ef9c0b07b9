//! An API server that answers with anything but what was asked for.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use runtime::random::Random;

use super::document::Kind;

/// It lives as long as the test's process.
pub(super) struct Server {
    port: u16,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for (number, stream) in (0..).zip(listener.incoming().flatten()) {
                std::thread::spawn(move || answer(stream, number));
            }
        });
        Self { port }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// Answers some requests of a connection. Clients may go at any moment.
fn answer(mut stream: TcpStream, number: u64) {
    let random = &mut Random::seeded(number);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    for _ in 0..1 + random.below(8) {
        if !matches!(stream.read(&mut [0; 16 << 10]), Ok(1..)) {
            return;
        }
        let body = body(random);
        let status = [
            "200 OK",
            "200 OK",
            "200 OK",
            "404 Not Found",
            "500 X",
            "403 Forbidden",
            "410 Gone",
            "307 X",
            "9999 Y",
        ];
        let status = status[usize::try_from(random.below(9)).unwrap()];
        // A length that is wrong now and then.
        let length = body.len() + usize::from(random.below(8) == 0);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nLocation: /loop\r\nContent-Length: {length}\r\n\r\n"
        );
        if stream.write_all(head.as_bytes()).is_err()
            || stream.write_all(&body).is_err()
            || length != body.len()
        {
            return;
        }
    }
}

fn body(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => br#"{"major":"1","minor":"36","gitVersion":"v1.36.3"}"#.to_vec(),
        1 => format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"message":"{}"}}"#,
            "m\u{1b}[1m".repeat(2_000)
        )
        .into_bytes(),
        2 => br#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"","versions":null}]}"#.to_vec(),
        3 => Kind::Dump.right().as_bytes().to_vec(),
        4 => Kind::Dump.wrong(random),
        _ => Kind::PodResources.wrong(random),
    }
}
