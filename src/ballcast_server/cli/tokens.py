"""`ballcast token`: named tokens of a server, for viewers and administrators."""

import time
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import app, new_console
from ballcast_server.cli.extra import require_server

tokens = typer.Typer(
    help="Give out, list and revoke named tokens of `ballcast serve`, while it runs or not.", no_args_is_help=True
)
app.add_typer(tokens, name="token")

Data = Annotated[Path, typer.Option("--data", help="The folder of the server.")]
Name = Annotated[str, typer.Argument(help="Of the person or program that has the token.")]


@tokens.command()
def add(
    name: Name,
    role: Annotated[str, typer.Option("--role", help="viewer: may look; admin: may also change.")] = "viewer",
    data: Data = Path("ballcast-data"),
) -> None:
    """Make a token, and print it; it cannot be shown again.

    Examples:

    ballcast token add desk-2 --role viewer
    """
    require_server()
    from ballcast_server.access.tokens import TokenStore

    typer.echo(TokenStore(data).add(name, role))


@tokens.command("list")
def list_(data: Data = Path("ballcast-data")) -> None:
    """List the names and roles of all tokens.

    Examples:

    ballcast token list
    """
    require_server()
    from rich.table import Table

    from ballcast.core.util import print_table
    from ballcast_server.access.tokens import TokenStore

    table = Table("name", "role", "since")
    for token in TokenStore(data).all():
        table.add_row(token.name, token.role, time.strftime("%Y-%m-%d", time.localtime(token.created)))
    print_table(new_console(), table)


@tokens.command()
def revoke(name: Name, data: Data = Path("ballcast-data")) -> None:
    """Take a token back: requests with it, and sessions begun with it, are refused at once.

    Examples:

    ballcast token revoke desk-2
    """
    require_server()
    from ballcast_server.access.tokens import TokenStore

    TokenStore(data).revoke(name)
    typer.echo(f"{name}: revoked")
