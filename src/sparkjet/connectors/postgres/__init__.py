"""PostgreSQL (extra ``postgres``): COPY into prepared transactions, or publishing after the decision."""
