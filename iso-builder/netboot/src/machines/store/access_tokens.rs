//! Tokens for the fleet page in their table.

use anyhow::{Result, anyhow};
use base::digest::Digest;

use super::columns::{moment, of_word, seconds, word};
use super::records::MachineRecords;
use super::sql::SqlRow;
use crate::machines::access_token::{AccessToken, TokenName};
use crate::moment::Moment;

const TOKENS: &str = "SELECT id, name, role, digest, created, expires, uses FROM access_tokens";

impl MachineRecords<'_> {
    /// The token with this ID.
    pub fn access_token(&self, id: &str) -> Result<Option<AccessToken>> {
        let rows = self.query(&format!("{TOKENS} WHERE id = $1"), &[id.into()])?;
        Ok(rows.into_iter().map(token).collect::<Result<Vec<_>>>()?.pop())
    }

    /// All tokens by their names, those that have ended too.
    pub fn access_tokens(&self) -> Result<Vec<AccessToken>> {
        self.query(&format!("{TOKENS} ORDER BY name"), &[])?.into_iter().map(token).collect()
    }

    /// Adds a token. Returns false if there is one of this name.
    pub fn add_access_token(&mut self, token: &AccessToken) -> Result<bool> {
        let AccessToken { id, name, role, digest, created, expires, uses } = token;
        if !self.query(&format!("{TOKENS} WHERE name = $1"), &[name.as_str().into()])?.is_empty() {
            return Ok(false);
        }
        let sql = "INSERT INTO access_tokens (id, name, role, digest, created, expires, uses) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let values = [
            id.as_str().into(),
            name.as_str().into(),
            word(role)?.into(),
            digest.as_bytes().to_vec().into(),
            seconds(*created),
            expires.map(seconds).into(),
            (*uses).into(),
        ];
        self.execute(sql, &values)?;
        Ok(true)
    }

    /// Counts a use of a token that has so many.
    pub fn use_access_token(&mut self, id: &str) -> Result<()> {
        self.execute("UPDATE access_tokens SET uses = uses - 1 WHERE id = $1 AND uses > 0", &[id.into()])?;
        Ok(())
    }

    /// Removes the token of this name. Returns it, if there was one.
    pub fn remove_access_token(&mut self, name: &TokenName) -> Result<Option<AccessToken>> {
        let rows = self.query(&format!("{TOKENS} WHERE name = $1"), &[name.as_str().into()])?;
        self.execute("DELETE FROM access_tokens WHERE name = $1", &[name.as_str().into()])?;
        Ok(rows.into_iter().map(token).collect::<Result<Vec<_>>>()?.pop())
    }
}

fn token(mut row: SqlRow) -> Result<AccessToken> {
    let (id, name) = (row.take()?, row.take::<String>()?);
    let name = name.parse().map_err(|why: String| anyhow!(why))?;
    let role = of_word(row.take()?)?;
    let digest = row.take::<Vec<u8>>()?;
    let digest = digest.try_into().map_err(|_| anyhow!("the digest of the token {id} has another length"))?;
    let created = moment(&mut row)?;
    let expires = row.take::<Option<i64>>()?.map(|seconds| Moment(seconds.unsigned_abs()));
    let (digest, uses) = (Digest::from_bytes(digest), row.take()?);
    Ok(AccessToken { id, name, role, digest, created, expires, uses })
}
