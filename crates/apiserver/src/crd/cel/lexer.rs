//! Splits CEL expressions into tokens.

use super::parser::Wrong;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name or a word of the language.
    Name(String),
    /// A whole number; the sign is an operator.
    Int(u64),
    /// `1u`.
    Uint(u64),
    /// A number with a fraction or an exponent.
    Double(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An operator or a bracket.
    Symbol(&'static str),
}

impl Token {
    /// As errors show it.
    pub fn shown(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Int(value) => value.to_string(),
            Self::Uint(value) => format!("{value}u"),
            Self::Double(value) => value.to_string(),
            Self::Text(value) => format!("{value:?}"),
            Self::Bytes(_) => "b\"…\"".into(),
            Self::Symbol(symbol) => (*symbol).into(),
        }
    }
}

const SYMBOLS: [&str; 25] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}", "=",
];

/// All tokens with where they begin, in characters.
pub fn lex(source: &str) -> Result<Vec<(Token, usize)>, Wrong> {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { chars, at: 0 };
    let mut tokens = Vec::new();
    while lexer.skip() {
        let start = lexer.at;
        let token = lexer.token().map_err(|why| (why, start))?;
        tokens.push((token, start));
    }
    Ok(tokens)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Past white space and comments; false at the end.
    fn skip(&mut self) -> bool {
        loop {
            if self.peek(0) == '/' && self.peek(1) == '/' {
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    self.at += 1;
                }
            } else if self.at < self.chars.len() && self.peek(0).is_ascii_whitespace() {
                self.at += 1;
            } else {
                return self.at < self.chars.len();
            }
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        let c = self.peek(0);
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_ascii_digit()) {
            return self.number();
        }
        if let Some(prefix) = self.quote_prefix() {
            return self.text(prefix);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let start = self.at;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
                self.at += 1;
            }
            return Ok(Token::Name(self.chars.get(start..self.at).unwrap_or(&[]).iter().collect()));
        }
        for symbol in SYMBOLS {
            if symbol.chars().enumerate().all(|(ahead, s)| self.peek(ahead) == s) {
                self.at += symbol.len();
                return Ok(Token::Symbol(symbol));
            }
        }
        Err(format!("Syntax error: token recognition error at: '{c}'"))
    }

    fn number(&mut self) -> Result<Token, String> {
        let start = self.at;
        if self.peek(0) == '0' && matches!(self.peek(1), 'x' | 'X') {
            self.at += 2;
            let digits = self.digits(|c| c.is_ascii_hexdigit());
            return self.whole(u64::from_str_radix(&digits, 16));
        }
        let mut text = self.digits(|c| c.is_ascii_digit());
        let mut double = false;
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            double = true;
            self.at += 1;
            text = format!("{text}.{}", self.digits(|c| c.is_ascii_digit()));
        }
        if matches!(self.peek(0), 'e' | 'E') {
            let sign = usize::from(matches!(self.peek(1), '+' | '-'));
            if self.peek(1 + sign).is_ascii_digit() {
                double = true;
                self.at += 1 + sign;
                self.digits(|c| c.is_ascii_digit());
                text = self.chars.get(start..self.at).unwrap_or(&[]).iter().collect();
            }
        }
        if double {
            return text.parse().map(Token::Double).map_err(|_| "invalid double literal".into());
        }
        self.whole(text.parse())
    }

    fn whole(&mut self, value: Result<u64, std::num::ParseIntError>) -> Result<Token, String> {
        let value = value.map_err(|_| "invalid int literal".to_owned())?;
        if matches!(self.peek(0), 'u' | 'U') {
            self.at += 1;
            return Ok(Token::Uint(value));
        }
        Ok(Token::Int(value))
    }

    fn digits(&mut self, is: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while is(self.peek(0)) {
            self.at += 1;
        }
        self.chars.get(start..self.at).unwrap_or(&[]).iter().collect()
    }

    /// How many letters stand before a quote, if a text begins here.
    fn quote_prefix(&self) -> Option<usize> {
        let is_quote = |ahead: usize| matches!(self.peek(ahead), '"' | '\'');
        let is_letter = |ahead: usize| matches!(self.peek(ahead), 'r' | 'R' | 'b' | 'B');
        (0..=2).find(|count| (0..*count).all(is_letter) && is_quote(*count))
    }

    fn text(&mut self, prefix: usize) -> Result<Token, String> {
        let letters: String = (0..prefix).map(|ahead| self.peek(ahead).to_ascii_lowercase()).collect();
        self.at += prefix;
        let quote = self.peek(0);
        let count = if self.peek(1) == quote && self.peek(2) == quote { 3 } else { 1 };
        self.at += count;
        let (raw, bytes) = (letters.contains('r'), letters.contains('b'));
        let mut out = Vec::new();
        loop {
            if self.at >= self.chars.len() {
                return Err("Syntax error: token recognition error".into());
            }
            if (0..count).all(|ahead| self.peek(ahead) == quote) {
                self.at += count;
                break;
            }
            let c = self.peek(0);
            self.at += 1;
            if c == '\n' && count == 1 {
                return Err("Syntax error: token recognition error".into());
            }
            if c == '\\' && !raw {
                self.escape(bytes, &mut out)?;
            } else {
                out.extend(c.to_string().bytes());
            }
        }
        if bytes {
            return Ok(Token::Bytes(out));
        }
        String::from_utf8(out).map(Token::Text).map_err(|_| "invalid string literal".into())
    }

    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Result<(), String> {
        let c = self.peek(0);
        self.at += 1;
        let plain = match c {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => c,
            'x' | 'X' => return self.code(2, 16, bytes, out),
            'u' => return self.code(4, 16, false, out),
            'U' => return self.code(8, 16, false, out),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8, bytes, out);
            }
            _ => return Err("invalid escape sequence".into()),
        };
        out.extend(plain.to_string().bytes());
        Ok(())
    }

    fn code(&mut self, digits: usize, radix: u32, byte: bool, out: &mut Vec<u8>) -> Result<(), String> {
        let text: String = (0..digits).map(|ahead| self.peek(ahead)).collect();
        self.at += digits;
        let wrong = || "invalid escape sequence".to_owned();
        let code = u32::from_str_radix(&text, radix).map_err(|_| wrong())?;
        if byte {
            out.push(u8::try_from(code).map_err(|_| wrong())?);
        } else {
            out.extend(char::from_u32(code).ok_or_else(wrong)?.to_string().bytes());
        }
        Ok(())
    }
}
