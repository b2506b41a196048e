//! A server on the loopback interface that records requests and sends scripted responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How the server treats one request.
#[derive(Clone, Copy, Debug)]
pub enum ServerReaction {
    Status(u16),
    /// A status with the field `Retry-After`.
    Busy(u16, &'static str),
    /// 200 with this body.
    Json(&'static str),
    /// Does not respond until the client disconnects.
    Hang,
    /// Closes the connection without a response.
    Close,
}

/// A server that keeps every request as text.
#[derive(Clone)]
pub struct ReportServer {
    pub url: String,
    pub requests: Arc<Mutex<Vec<String>>>,
}

impl ReportServer {
    /// The reaction to each request in turn, the last for all further ones.
    pub fn new(manners: &[ServerReaction]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, requests: Arc::default() };
        let (manners, requests) = (manners.to_vec(), server.requests.clone());
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let manner = manners[number.min(manners.len() - 1)];
                let requests = requests.clone();
                std::thread::spawn(move || drop(answer(stream.unwrap(), manner, &requests)));
            }
        });
        server
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The paths of all requests.
    pub fn paths(&self) -> Vec<String> {
        self.requests().iter().map(|r| r.split_whitespace().nth(1).unwrap().to_owned()).collect()
    }
}

fn answer(
    mut stream: TcpStream,
    manner: ServerReaction,
    requests: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        request.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    request.push_str(&String::from_utf8_lossy(&body));
    requests.lock().unwrap().push(request);
    match manner {
        ServerReaction::Status(status) => write!(
            stream,
            "HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
        ServerReaction::Busy(status, after) => write!(
            stream,
            "HTTP/1.1 {status} X\r\nRetry-After: {after}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
        ServerReaction::Json(body) => {
            let length = body.len();
            write!(stream, "HTTP/1.1 200 X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        }
        ServerReaction::Hang => std::io::copy(&mut reader, &mut std::io::sink()).map(drop),
        ServerReaction::Close => Ok(()),
    }
}
