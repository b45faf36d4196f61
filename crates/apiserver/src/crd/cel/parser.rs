//! Reads CEL expressions into trees. Depth and size are limited, so that no expression can exhaust the stack.

use super::lexer::{Token, lex};

/// How deep expressions may nest, chains of operators counted.
const DEPTH_MAX: usize = 150;
/// How deep brackets, calls and choices may nest: each level takes a dozen frames of the parser's stack.
const NEST_MAX: usize = 40;
/// How long expressions may be, in bytes.
const LENGTH_MAX: usize = 100_000;

/// An expression, with the place (in characters) that errors point to.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub node: Node,
    /// Where.
    pub at: usize,
    depth: usize,
}

impl Expr {
    fn new(node: Node, at: usize) -> Self {
        let deepest = |all: &[Self]| all.iter().map(|e| e.depth).max().unwrap_or(0);
        let below = match &node {
            Node::Literal(_) | Node::Name(_) => 0,
            Node::Select { of, .. } => of.depth,
            Node::Index { of, index, .. } => of.depth.max(index.depth),
            Node::Call { on, args, .. } => on.as_ref().map_or(0, |on| on.depth).max(deepest(args)),
            Node::List(items) => items.iter().map(|(e, _)| e.depth).max().unwrap_or(0),
            Node::Map(entries) => entries.iter().map(|(k, v)| k.depth.max(v.depth)).max().unwrap_or(0),
            Node::Macro { of, args, .. } => of.depth.max(deepest(args)),
        };
        Self { node, at, depth: below + 1 }
    }

    /// Refuses a tree that has grown too deep to walk.
    fn shallow(self) -> Result<Self, Wrong> {
        if self.depth > DEPTH_MAX {
            return Err((format!("expression recursion limit exceeded: {DEPTH_MAX}"), self.at));
        }
        Ok(self)
    }
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum Node {
    /// A constant.
    Literal(Literal),
    /// A name.
    Name(String),
    /// `a.b`; `has(a.b)` with `test`; `a.?b` with `optional`.
    Select {
        /// The left side.
        of: Box<Expr>,
        /// The field.
        field: String,
        /// Only whether it is there.
        test: bool,
        /// Gives an optional.
        optional: bool,
    },
    /// `a[b]`; `a[?b]` with `optional`.
    Index {
        /// The left side.
        of: Box<Expr>,
        /// Inside the brackets.
        index: Box<Expr>,
        /// Gives an optional.
        optional: bool,
    },
    /// `f(x)`, `a.f(x)`, and operators by their names, such as `_+_`.
    Call {
        /// The left side of the dot.
        on: Option<Box<Expr>>,
        /// The function.
        name: String,
        /// What it is called with.
        args: Vec<Expr>,
    },
    /// `[a, ?b]`.
    List(Vec<(Expr, bool)>),
    /// `{a: b}`.
    Map(Vec<(Expr, Expr)>),
    /// `a.all(x, p)` and its like.
    Macro {
        /// Its name.
        name: &'static str,
        /// What it walks, or the value that is named.
        of: Box<Expr>,
        /// The variables.
        vars: Vec<String>,
        /// The expressions after them.
        args: Vec<Expr>,
    },
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// `1`.
    Int(i64),
    /// `1u`.
    Uint(u64),
    /// `1.0`.
    Double(f64),
    /// `'a'`.
    Text(String),
    /// `b'a'`.
    Bytes(Vec<u8>),
}

/// A sentence and where it points.
pub type Wrong = (String, usize);

/// Reads a whole expression.
pub fn parse(source: &str) -> Result<Expr, Wrong> {
    if source.len() > LENGTH_MAX {
        return Err(("expression code point size exceeds limit".into(), 0));
    }
    let mut parser = Parser { tokens: lex(source)?, at: 0, depth: 0, end: source.chars().count() };
    let expr = parser.ternary()?.shallow()?;
    if parser.at < parser.tokens.len() {
        return Err(parser.unexpected("<EOF>"));
    }
    Ok(expr)
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    end: usize,
}

/// Binary operators from loose to tight; within a level they go left to right.
const LEVELS: [&[(&str, &str)]; 5] = [
    &[("||", "_||_")],
    &[("&&", "_&&_")],
    &[
        ("<", "_<_"),
        ("<=", "_<=_"),
        (">", "_>_"),
        (">=", "_>=_"),
        ("==", "_==_"),
        ("!=", "_!=_"),
        ("in", "@in"),
    ],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// Macros called on something, with how many variables and expressions they take.
const MACROS: [(&str, usize, &[usize]); 12] = [
    ("all", 1, &[1]),
    ("exists", 1, &[1]),
    ("exists_one", 1, &[1]),
    ("filter", 1, &[1]),
    ("map", 1, &[1, 2]),
    ("all", 2, &[1]),
    ("exists", 2, &[1]),
    ("existsOne", 2, &[1]),
    ("transformList", 2, &[1, 2]),
    ("transformMap", 2, &[1, 2]),
    ("optMap", 1, &[1]),
    ("optFlatMap", 1, &[1]),
];

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(_, place)| *place)
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(s)) if *s == symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Wrong> {
        if self.eat(symbol) { Ok(()) } else { Err(self.unexpected(&format!("'{symbol}'"))) }
    }

    fn unexpected(&self, wanted: &str) -> Wrong {
        let found = self.peek().map_or_else(|| "<EOF>".into(), Token::shown);
        (format!("Syntax error: mismatched input '{found}' expecting {wanted}"), self.place())
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        self.depth += 1;
        if self.depth > NEST_MAX {
            return Err((format!("expression recursion limit exceeded: {NEST_MAX}"), self.place()));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn ternary(&mut self) -> Result<Expr, Wrong> {
        self.nested(|this| {
            let condition = this.binary(0)?;
            let at = this.place();
            if !this.eat("?") {
                return Ok(condition);
            }
            let yes = this.binary(0)?;
            this.expect(":")?;
            let no = this.ternary()?;
            Ok(call("_?_:_", vec![condition, yes, no], at))
        })
    }

    fn binary(&mut self, level: usize) -> Result<Expr, Wrong> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let at = self.place();
            let found = match self.peek() {
                Some(Token::Symbol(symbol)) => operators.iter().find(|(s, _)| s == symbol),
                Some(Token::Name(name)) if name == "in" => operators.iter().find(|(s, _)| *s == "in"),
                _ => None,
            };
            let Some((_, name)) = found else { return Ok(left) };
            self.at += 1;
            let right = self.binary(level + 1)?;
            // A long chain makes a tree as deep as it is long.
            left = call(name, vec![left, right], at).shallow()?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Wrong> {
        let at = self.place();
        for (symbol, name) in [("!", "!_"), ("-", "-_")] {
            if self.eat(symbol) {
                if let (true, Some(Token::Int(value))) = (symbol == "-", self.peek().cloned()) {
                    self.at += 1;
                    let value = i64::try_from(-i128::from(value))
                        .map_err(|_| ("invalid int literal".to_owned(), at))?;
                    return self.postfix(literal(Literal::Int(value), at));
                }
                let inner = self.nested(Self::unary)?;
                return Ok(call(name, vec![inner], at));
            }
        }
        let primary = self.primary()?;
        self.postfix(primary)
    }

    fn postfix(&mut self, mut left: Expr) -> Result<Expr, Wrong> {
        loop {
            left = left.shallow()?;
            let at = self.place();
            if self.eat(".") {
                let optional = self.eat("?");
                let name = self.name()?;
                left = if !optional && self.eat("(") {
                    let args = self.arguments()?;
                    method(left, name, args, at)?
                } else {
                    Expr::new(Node::Select { of: Box::new(left), field: name, test: false, optional }, at)
                };
            } else if self.eat("[") {
                let optional = self.eat("?");
                let index = self.ternary()?;
                self.expect("]")?;
                left = Expr::new(Node::Index { of: Box::new(left), index: Box::new(index), optional }, at);
            } else {
                return Ok(left);
            }
        }
    }

    fn name(&mut self) -> Result<String, Wrong> {
        match self.peek().cloned() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Wrong> {
        let mut args = Vec::new();
        if self.eat(")") {
            return Ok(args);
        }
        loop {
            args.push(self.ternary()?);
            if self.eat(")") {
                return Ok(args);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Result<Expr, Wrong> {
        let at = self.place();
        let Some(token) = self.peek().cloned() else {
            let wanted = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
            return Err(self.unexpected(wanted));
        };
        self.at += 1;
        match token {
            Token::Int(value) => {
                let value = i64::try_from(value).map_err(|_| ("invalid int literal".to_owned(), at))?;
                Ok(literal(Literal::Int(value), at))
            }
            Token::Uint(value) => Ok(literal(Literal::Uint(value), at)),
            Token::Double(value) => Ok(literal(Literal::Double(value), at)),
            Token::Text(value) => Ok(literal(Literal::Text(value), at)),
            Token::Bytes(value) => Ok(literal(Literal::Bytes(value), at)),
            Token::Name(name) => self.named(name, at),
            Token::Symbol("(") => {
                let inner = self.ternary()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => self.list(at),
            Token::Symbol("{") => self.map(at),
            Token::Symbol(_) => {
                self.at -= 1;
                Err(self.unexpected("an expression"))
            }
        }
    }

    fn named(&mut self, name: String, at: usize) -> Result<Expr, Wrong> {
        match name.as_str() {
            "true" | "false" => return Ok(literal(Literal::Bool(name == "true"), at)),
            "null" => return Ok(literal(Literal::Null, at)),
            _ => {}
        }
        let open = self.place();
        if !self.eat("(") {
            return Ok(Expr::new(Node::Name(name), at));
        }
        let mut args = self.arguments()?;
        if name != "has" {
            return Ok(Expr::new(Node::Call { on: None, name, args }, open));
        }
        match (args.pop().map(|arg| arg.node), args.is_empty()) {
            (Some(Node::Select { of, field, optional, .. }), true) => {
                Ok(Expr::new(Node::Select { of, field, test: true, optional }, at))
            }
            _ => Err(("invalid argument to has() macro".into(), open)),
        }
    }

    fn list(&mut self, at: usize) -> Result<Expr, Wrong> {
        let mut items = Vec::new();
        while !self.eat("]") {
            let optional = self.eat("?");
            items.push((self.ternary()?, optional));
            if !self.eat(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Expr::new(Node::List(items), at))
    }

    fn map(&mut self, at: usize) -> Result<Expr, Wrong> {
        let mut entries = Vec::new();
        while !self.eat("}") {
            let key = self.ternary()?;
            self.expect(":")?;
            entries.push((key, self.ternary()?));
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expr::new(Node::Map(entries), at))
    }
}

fn literal(value: Literal, at: usize) -> Expr {
    Expr::new(Node::Literal(value), at)
}

fn call(name: &str, args: Vec<Expr>, at: usize) -> Expr {
    Expr::new(Node::Call { on: None, name: name.into(), args }, at)
}

/// `a.f(…)`: a macro when it looks like one, a function otherwise.
fn method(on: Expr, name: String, mut args: Vec<Expr>, at: usize) -> Result<Expr, Wrong> {
    let is_cel = matches!(&on.node, Node::Name(n) if n == "cel");
    if is_cel && name == "bind" && args.len() == 3 {
        let rest = args.split_off(1);
        let mut rest = rest.into_iter();
        let (Some(of), Some(body), Some(Node::Name(var))) =
            (rest.next(), rest.next(), args.pop().map(|a| a.node))
        else {
            return Err(("cel.bind() variable names must be simple identifiers".into(), at));
        };
        let node = Node::Macro { name: "bind", of: Box::new(of), vars: vec![var], args: vec![body] };
        return Ok(Expr::new(node, at));
    }
    for (known, vars, counts) in MACROS {
        if known != name || !counts.iter().any(|count| vars + count == args.len()) {
            continue;
        }
        let names: Option<Vec<String>> = args
            .iter()
            .take(vars)
            .map(|arg| match &arg.node {
                Node::Name(name) => Some(name.clone()),
                _ => None,
            })
            .collect();
        let Some(vars) = names else { continue };
        let args = args.split_off(vars.len());
        return Ok(Expr::new(Node::Macro { name: known, of: Box::new(on), vars, args }, at));
    }
    Ok(Expr::new(Node::Call { on: Some(Box::new(on)), name, args }, at))
}
