//! Requests to the page's server, written by hand: so clients can be of every kind.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A connection that has sent a request.
pub(crate) async fn request(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    connection.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
    connection
}

/// The answer to a GET.
pub(crate) async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    let headers = [headers, &[("Connection", "close")]].concat();
    answer(request(address, path, &headers).await).await
}

/// The answer to a request with a body of JSON.
pub(crate) async fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> Response {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let body = if method == "GET" { "" } else { body };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(text.as_bytes()).await.unwrap();
    answer(connection).await
}

/// As long as it says; not all servers close the connection when they are asked to.
async fn answer(connection: TcpStream) -> Response {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).await.unwrap() > 0, "the connection has ended: {head}");
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.unwrap_or_else(|| panic!("{head}")).trim().parse().unwrap()];
    reader.read_exact(&mut body).await.unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, body: String::from_utf8(body).unwrap() }
}

/// The events of a page that follows: name and data.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) async fn follow(address: SocketAddr, token: &str) -> Self {
        let authorization = format!("Bearer {token}");
        let headers = [("Authorization", authorization.as_str())];
        Self(BufReader::new(request(address, "/view/v1/changes", &headers).await))
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).await.unwrap() > 0, "the stream has ended");
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data.trim()).unwrap());
            }
        }
    }
}
